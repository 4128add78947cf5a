"""A lean HTTP client that keeps a server busy: raw sockets, kept alive, one request at a time on each.

It costs about a tenth of what a Python server does, so that the server is what is measured. Knows HTTP/1.1
with `Content-Length` and nothing of Spool.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

Request = bytes
Next = Callable[[], Request]


@dataclass
class Load:
    """What came of it: seconds of each answer (sorted once it is over), answers by status, wall seconds."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    wall: float = 0.0
    example: bytes = b""
    """The body of an answer that was no success."""

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return len(self.seconds) / self.wall if self.wall else 0.0

    def percentile(self, share: float) -> float:
        """Milliseconds within which this share of the answers came."""
        return 1000 * self.seconds[min(int(share * len(self.seconds)), len(self.seconds) - 1)]

    @property
    def all_well(self) -> bool:
        """Whether every answer was a success."""
        return set(self.statuses) <= {200, 202}


def request(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Request:
    """The bytes of a request."""
    all_headers = {"Host": "localhost", **headers}
    if body:
        all_headers["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in all_headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def run(url: str, streams: list[Next], seconds: float) -> Load:
    """Ask for so long, one connection a stream; each stream makes its own requests."""
    return asyncio.run(measured(url, streams, seconds))


async def measured(url: str, streams: list[Next], seconds: float) -> Load:
    """As `run`, within a loop."""
    load, began = Load(), time.perf_counter()
    await asyncio.gather(*(_stream(url, each, began + seconds, load) for each in streams))
    load.wall = time.perf_counter() - began
    load.seconds.sort()
    return load


async def _stream(url: str, following: Next, until: float, load: Load) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        began = 0.0
        while began < until:  # once at least
            began = time.perf_counter()
            writer.write(following())
            status, body = await _answer(reader)
            load.seconds.append(time.perf_counter() - began)
            load.statuses[status] += 1
            if status not in (200, 202):
                load.example = body
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, _, after = head.partition(b"content-length:")
    body = await reader.readexactly(int(after.split(b"\r\n", 1)[0])) if after else b""
    return int(head[9:12]), body
