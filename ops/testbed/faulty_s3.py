"""An HTTP proxy before an S3 server that misbehaves by rule: wrong statuses, slow or short bodies, resets.

Each rule counts its uses, so that a fault passes by itself after as many as a test asks for.
"""

import threading
import time
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

_HOP = {"connection", "transfer-encoding", "keep-alive", "date", "server", "content-length"}
CODES = {409: "OperationAborted", 412: "PreconditionFailed", 500: "InternalError", 503: "SlowDown"}
CODES |= {403: "AccessDenied", 507: "InsufficientStorage"}


@dataclass
class Rule:
    """What happens to requests of `method` ("" for any) whose path holds `key`, `times` times.

    `status`: answer this, and pass nothing on. `unheard`: pass the request on and then answer `status`, as
    when the answer is lost. `delay` seconds before anything. `cut`: only so many bytes of the body, then the
    connection breaks.
    """

    method: str
    key: str = ""
    times: int = 1
    status: int = 0
    unheard: bool = False
    delay: float = 0.0
    cut: int = -1
    used: int = 0


class FaultyS3:
    """Passes requests on to `target`, except where a rule says otherwise."""

    def __init__(self, target: str) -> None:
        self.rules: list[Rule] = []
        self.ranges: list[str] = []
        """What requests for a part of an object asked for."""
        self._lock = threading.Lock()
        proxy = self
        parts = urlsplit(target)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_request(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                rule = proxy.rule_for(self.command, self.path)
                if "Range" in self.headers:
                    proxy.ranges.append(self.headers["Range"])
                if rule is not None and rule.delay:
                    time.sleep(rule.delay)
                if rule is not None and rule.status and not rule.unheard:
                    self._refuse(rule.status)
                    return
                upstream = HTTPConnection(str(parts.hostname), parts.port, timeout=30)
                upstream.request(self.command, self.path, body, dict(self.headers))
                answer = upstream.getresponse()
                data = answer.read()
                headers = answer.getheaders()
                length = answer.getheader("Content-Length") or str(len(data))
                upstream.close()
                if rule is not None and rule.status:
                    self._refuse(rule.status)
                    return
                self.send_response(answer.status)
                for name, value in headers:
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", length)
                self.end_headers()
                if rule is not None and rule.cut >= 0:
                    self.wfile.write(data[: rule.cut])
                    self.close_connection = True
                elif self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = do_request  # noqa: N815

            def _refuse(self, status: int) -> None:
                code = CODES[status]
                body = b"" if self.command == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def rule_for(self, method: str, path: str) -> Rule | None:
        """The rule that this request meets, counted as used."""
        with self._lock:
            for rule in self.rules:
                if rule.method in {"", method} and rule.key in path and rule.used < rule.times:
                    rule.used += 1
                    return rule
        return None

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
