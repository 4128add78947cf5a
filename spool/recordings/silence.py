"""A recording with zeros for closed times: what is sent to readers without the right.

Samples of uncompressed WAV files are replaced where they lie, so every byte range of the file stays what it
was, but for the silence. Of any other format readers get nothing while something of it is closed: its bytes
cannot be cut at a time, and a player would guess.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from math import isinf
from typing import BinaryIO, NamedTuple

_HEADER = 64 * 1024
"""How far into a file its samples begin, at most."""
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


class Muted(NamedTuple):
    """Which bytes of a file are samples of closed times, and the byte that is silence."""

    spans: tuple[tuple[int, int], ...]
    silence: int

    def apply(self, blocks: Iterable[bytes], start: int) -> Iterator[bytes]:
        """The blocks of the file from byte `start` on, silenced."""
        for block in blocks:
            end = start + len(block)
            hit = [(max(a, start), min(b, end)) for a, b in self.spans if a < end and b > start]
            if hit:
                changed = bytearray(block)
                for a, b in hit:
                    changed[a - start : b - start] = bytes([self.silence]) * (b - a)
                block = bytes(changed)
            start = end
            yield block


def mute_wav(file: BinaryIO, size: int, spans: Sequence[tuple[float, float]]) -> Muted | None:
    """What to silence in a WAV file of `size` bytes; None if it is not one with uncompressed samples."""
    head = file.read(_HEADER)
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return None
    at, fmt = 12, b""
    while at + 8 <= len(head):
        name, length = head[at : at + 4], struct.unpack_from("<I", head, at + 4)[0]
        at += 8
        if name == b"fmt ":
            fmt = head[at : at + length]
        if name == b"data":
            return _mute(fmt, at, size, spans)
        at += length + length % 2
    return None


def _mute(fmt: bytes, begin: int, size: int, spans: Sequence[tuple[float, float]]) -> Muted | None:
    if len(fmt) < 16:
        return None
    kind, _, rate, _, frame, bits = struct.unpack_from("<HHIIHH", fmt)
    if kind == _EXTENSIBLE and len(fmt) >= 26:
        kind = struct.unpack_from("<H", fmt, 24)[0]
    if kind not in (_PCM, _FLOAT) or not rate or not frame:
        return None
    # To the end of the file, whatever length its header states: some readers go on to there.
    muted = [
        (begin + int(start * rate) * frame, size if isinf(stop) else begin + (int(stop * rate) + 1) * frame)
        for start, stop in spans
    ]
    return Muted(tuple(muted), 0x80 if bits <= 8 else 0)
