"""Measures how long `/healthz` of an API takes to answer, from a process of its own."""

import multiprocessing
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection


class Prober:
    """Asks for `/healthz` again and again on one connection, in a process of its own: the bodies that this
    one makes and sends would hold the prober as well as the API."""

    def __init__(self, host: str, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._answers, far = context.Pipe(duplex=False)
        self._process = context.Process(target=_probe, args=(host, port, far), daemon=True)
        self._seen: list[tuple[float, float]] = []

    def __enter__(self) -> "Prober":
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def since(self, began: float) -> list[float]:
        """How long each answer took (s) that was waited for after `began`, a time of the monotonic clock."""
        while self._answers.poll():
            self._seen.append(self._answers.recv())
        return [took for at, took in self._seen if at + took >= began]


def _probe(host: str, port: int, answers: "Connection[tuple[float, float], None]") -> None:
    asking = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    while True:
        with suppress(OSError), socket.create_connection((host, port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection.makefile("rb") as stream:
                while True:
                    began = time.monotonic()
                    connection.sendall(asking)
                    head = b""
                    while not head.endswith(b"\r\n\r\n"):
                        line = stream.readline()
                        if not line:
                            raise ConnectionResetError
                        head += line
                    stream.read(length_of(head))
                    answers.send((began, time.monotonic() - began))
                    time.sleep(0.005)


def length_of(head: bytes) -> int:
    """The Content-Length of an answer's head."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def percentile(seconds: Sequence[float], share: float) -> float:
    """In milliseconds."""
    return 1000 * sorted(seconds)[min(int(share * len(seconds)), len(seconds) - 1)] if seconds else 0.0


def describe(seconds: Sequence[float]) -> str:
    """The spread of these times as text."""
    p50, p99, longest = (percentile(seconds, share) for share in (0.5, 0.99, 1))
    return f"{len(seconds)} times, p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {longest:.0f} ms"
