"""A real HTTP server that receives webhooks, and answers each path as it is told."""

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook


@dataclass(frozen=True)
class Message:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> dict[str, Any]:
        """What it says, if the specification's own library finds its signature good."""
        return dict(Webhook(secret).verify(self.body, self.headers))


@dataclass
class Receiver:
    """`answers` gives the statuses of a path in turn, the last one for ever; 200 where nothing is said."""

    answers: dict[str, list[int]] = field(default_factory=dict)
    held: threading.Event = field(default_factory=threading.Event)
    messages: list[Message] = field(default_factory=list)
    port: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = receiver.took(Message(self.path, headers, body))
                if self.path == "/slow":
                    receiver.held.wait(60)
                self.send_response(status)
                if status == 302:
                    inside = f"http://127.0.0.1:{receiver.port}/inside"
                    self.send_header("Location", "https://xn--/" if self.path == "/nowhere" else inside)
                self.end_headers()
                try:
                    while self.path == "/endless" and not receiver.held.is_set():
                        self.wfile.write(b"x" * 65536)
                except OSError:
                    pass

            do_GET = do_POST  # noqa: N815 - the server's own name

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def url(self, path: str = "/", host: str = "localhost") -> str:
        return f"http://{host}:{self.port}{path}"

    def took(self, message: Message) -> int:
        with self._changed:
            self.messages.append(message)
            left = self.answers.get(message.path, [200])
            self._changed.notify_all()
            return left.pop(0) if len(left) > 1 else left[0]

    def at(self, path: str, least: int = 1) -> list[Message]:
        """The messages of a path, once there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._at(path)) >= least, 60), self.messages
            return self._at(path)

    def _at(self, path: str) -> list[Message]:
        return [message for message in self.messages if message.path == path]

    def close(self) -> None:
        self.held.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
