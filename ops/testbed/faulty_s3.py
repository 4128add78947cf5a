"""An HTTP proxy before an S3 server that misbehaves by rule: wrong statuses, slow or short bodies, resets.

Each rule counts its uses, so that a fault passes by itself after as many as a test asks for.
"""

import contextlib
import threading
import time
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

_HOP = {"connection", "transfer-encoding", "keep-alive", "date", "server", "content-length"}
CODES = {409: "OperationAborted", 412: "PreconditionFailed", 500: "InternalError", 503: "SlowDown"}
CODES |= {403: "AccessDenied", 507: "InsufficientStorage"}


@dataclass
class Rule:
    """What happens to requests of `method` ("" for any) whose path holds `key`, `times` times.

    `status`: answer this, and pass nothing on. `unheard`: pass the request on and then answer `status`, as
    when the answer is lost. `delay` seconds before anything. `cut`: only so many bytes of the body, then the
    connection breaks. `drip`: a byte of the body every so many seconds. `flip`: this byte of the body arrives
    changed. `etag`: the answer is another version's, whatever was asked for.
    """

    method: str
    key: str = ""
    times: int = 1
    status: int = 0
    unheard: bool = False
    delay: float = 0.0
    cut: int = -1
    drip: float = 0.0
    flip: int = -1
    etag: str = ""
    used: int = 0


class FaultyS3:
    """Passes requests on to `target`, except where a rule says otherwise."""

    def __init__(self, target: str) -> None:
        self.rules: list[Rule] = []
        self.ranges: list[str] = []
        """What requests for a part of an object asked for."""
        self._lock = threading.Lock()
        self.closing = threading.Event()
        handler = type("Handler", (_Handler,), {"proxy": self, "target": urlsplit(target)})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def rule_for(self, method: str, path: str) -> Rule | None:
        """The rule that this request meets, counted as used."""
        with self._lock:
            for rule in self.rules:
                if rule.method in {"", method} and rule.key in path and rule.used < rule.times:
                    rule.used += 1
                    return rule
        return None

    def refusal(self, method: str, path: str, headers: Message) -> str | None:
        """The error code with which the store answers 403 to this request; None where it lets it in."""
        return None

    def cors(self, method: str, path: str, headers: Message) -> dict[str, str] | None:
        """The headers with which the store lets a page of another origin do this, none where it does not;
        None leaves that to the target."""
        return None

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Whoever asked has hung up."""


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultyS3
    target: SplitResult
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        rule = self.proxy.rule_for(self.command, self.path) or Rule("")
        if "Range" in self.headers:
            self.proxy.ranges.append(self.headers["Range"])
        time.sleep(rule.delay)
        if (code := self.proxy.refusal(self.command, self.path, self.headers)) is not None:
            self._refuse(403, code)
            return
        if rule.status and not rule.unheard:
            self._refuse(rule.status)
            return
        shared = self.proxy.cors(self.command, self.path, self.headers)
        if shared is not None and self.command == "OPTIONS":
            if shared:
                self._answer(200, {**shared, "Content-Length": "0"}, b"", rule)
            else:
                self._refuse(403, "AccessForbidden")
            return
        status, headers, data = self._forward(body, rule)
        if rule.status:
            self._refuse(rule.status)
            return
        if shared is not None:
            headers = {k: v for k, v in headers.items() if not k.lower().startswith("access-control-")}
            headers |= shared
        if 0 <= rule.flip < len(data):
            data = data[: rule.flip] + bytes([data[rule.flip] ^ 1]) + data[rule.flip + 1 :]
        self._answer(status, headers, data, rule)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = do_OPTIONS = do_request  # noqa: N815

    def _answer(self, status: int, headers: dict[str, str], data: bytes, rule: Rule) -> None:
        with contextlib.suppress(OSError):  # whoever reads may have gone
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self._send(data, rule)

    def _forward(self, body: bytes, rule: Rule) -> tuple[int, dict[str, str], bytes]:
        asked = {k: v for k, v in self.headers.items() if not (rule.etag and k == "If-Match")}
        upstream = HTTPConnection(str(self.target.hostname), self.target.port, timeout=30)
        upstream.request(self.command, self.path, body, asked)
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        headers = {k: v for k, v in answer.getheaders() if k.lower() not in _HOP}
        if rule.etag:
            headers = {k: rule.etag if k.lower() == "etag" else v for k, v in headers.items()}
        headers["Content-Length"] = answer.getheader("Content-Length") or str(len(data))
        return answer.status, headers, data

    def _send(self, data: bytes, rule: Rule) -> None:
        self.close_connection = rule.cut >= 0 or rule.drip > 0
        if rule.cut >= 0:
            self.wfile.write(data[: rule.cut])
        elif rule.drip:
            for byte in data:
                self.wfile.write(bytes([byte]))
                if self.proxy.closing.wait(rule.drip):
                    return
        elif self.command != "HEAD":
            self.wfile.write(data)

    def _refuse(self, status: int, code: str = "") -> None:
        code = code or CODES[status]
        body = b"" if self.command == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
