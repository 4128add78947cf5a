"""An https server that is alive and never done."""

import itertools
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

from tests.worker.sources import certificates

HEADERS = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"


class DripServer:
    """Answers every request with 100,000 bytes, a byte every tenth of a second after `sent_at_once` bytes.
    Clients have to trust `certificate`; `asked` counts their requests."""

    def __init__(self, folder: Path) -> None:
        self.certificate, key = certificates.for_localhost(folder)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, key)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._stop = threading.Event()
        self.port = self._socket.getsockname()[1]
        self.handshake = True
        self.sent_at_once = 0
        self.closed_by_peer = threading.Event()
        self.asked = 0
        self._requests = itertools.count(1)

    def __enter__(self) -> "DripServer":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        if not self.handshake:
            self._stop.wait(60)
            return
        answer = HEADERS + bytes(100_000)
        try:
            with self._context.wrap_socket(connection, server_side=True) as tls:
                tls.recv(4096)
                self.asked = next(self._requests)
                tls.sendall(answer[: self.sent_at_once])
                for byte in answer[self.sent_at_once :]:
                    if self._stop.wait(0.1):
                        return
                    tls.sendall(bytes([byte]))
        except OSError:
            self.closed_by_peer.set()
