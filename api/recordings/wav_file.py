"""A WAV file that is made as it is read: a stretch of a recording's samples, silenced where it is closed.

Its length is known before anything is decoded, so it can be asked for in parts. Beyond 4 GiB it is an RF64
file (EBU Tech 3306).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from api.recordings.samples import Samples
from spool.recordings.silence import Muted, Spans, mute

_LONGEST = 0xFFFF_FFFF
MEDIA_TYPE = "audio/wav"


@dataclass(frozen=True, slots=True)
class WavFile:
    """The frames `[first, last)` of a recording as a file; `spans` are closed, in seconds of the
    recording."""

    samples: Samples
    first: int
    last: int
    spans: Spans = ()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self._header) + self._data + self._data % 2

    def part(self, start: int, end: int) -> Iterator[bytes]:
        """Bytes `[start, end)`."""
        header, frame = self._header, self.samples.format.frame
        yield header[start:end]
        begin, stop = max(0, start - len(header)), min(end - len(header), self._data)
        if begin < stop:
            first = begin // frame
            wanted = self.samples.read(self.first + first, self.first + -(-stop // frame))
            silenced = self._muted().apply(wanted, first * frame)
            yield from _cut(silenced, begin - first * frame, stop - begin)
        if end > len(header) + self._data >= start:
            yield bytes(end - max(start, len(header) + self._data))

    @property
    def _data(self) -> int:
        return (self.last - self.first) * self.samples.format.frame

    def _muted(self) -> Muted:
        margin = self.samples.margin
        spans = [(max(0.0, start - margin), stop + margin) for start, stop in self.spans]
        return mute(self.samples.format.layout, spans, 0, self._data, self.first)

    @property
    def _header(self) -> bytes:
        kind, data = self.samples.format, self._data
        rest = data + data % 2
        fmt = struct.pack(
            "<4sIHHIIHH",
            b"fmt ",
            16,
            kind.tag,
            kind.channels,
            kind.rate,
            kind.rate * kind.frame,
            kind.frame,
            kind.bits,
        )
        size = 4 + len(fmt) + 8 + rest
        if size <= _LONGEST:
            return struct.pack("<4sI4s", b"RIFF", size, b"WAVE") + fmt + struct.pack("<4sI", b"data", data)
        sizes = struct.pack("<4sIQQQI", b"ds64", 28, size + 36, data, self.last - self.first, 0)
        head = struct.pack("<4sI4s", b"RF64", _LONGEST, b"WAVE")
        return head + sizes + fmt + struct.pack("<4sI", b"data", _LONGEST)


def _cut(blocks: Iterator[bytes], skip: int, length: int) -> Iterator[bytes]:
    """`length` bytes after the first `skip`, which are less than a frame."""
    for block in blocks:
        piece = block[skip : skip + length]
        skip = max(0, skip - len(block))
        length -= len(piece)
        if piece:
            yield piece
        if not length:
            return
