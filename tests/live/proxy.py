"""An HTTP proxy in front of an S3 server that breaks what a test tells it to break."""

import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

_HOP = {"connection", "transfer-encoding", "keep-alive", "date", "server"}


class BreakingProxy:
    """Passes requests on. `cut_after`: bytes after which the next GET bodies break off, one entry each.
    `status`: when set, every request is answered with it."""

    def __init__(self, target: str) -> None:
        self.cut_after: list[int] = []
        self.status: int | None = None
        self.ranges: list[str] = []
        proxy = self
        parts = urlsplit(target)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_request(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if proxy.status is not None:
                    self._refuse(proxy.status)
                    return
                upstream = HTTPConnection(str(parts.hostname), parts.port)
                upstream.request(self.command, self.path, body, dict(self.headers))
                answer = upstream.getresponse()
                data = answer.read()
                upstream.close()
                self._pass_on(answer.status, answer.getheaders(), data)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = do_request  # noqa: N815

            def _pass_on(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                self.end_headers()
                if "Range" in self.headers:
                    proxy.ranges.append(self.headers["Range"])
                if self.command == "GET" and status in {200, 206} and proxy.cut_after:
                    self.wfile.write(data[: proxy.cut_after.pop(0)])
                    self.close_connection = True
                elif self.command != "HEAD":
                    self.wfile.write(data)

            def _refuse(self, status: int) -> None:
                body = b"" if self.command == "HEAD" else b"<Error><Code>%d</Code></Error>" % status
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
