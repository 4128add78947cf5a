"""A recording with zeros for closed times: what is sent to readers without the right.

Samples of uncompressed WAV files are replaced where they lie, so every byte range of the file stays what it
was, but for the silence. Other formats have to be decoded first (`api.recordings.samples`).
"""

from collections.abc import Iterable, Iterator, Sequence
from math import isinf
from typing import BinaryIO, NamedTuple

from spool.recordings.wav_header import read_wav_header

Spans = Sequence[tuple[float, float]]
"""Closed times in seconds."""
_PLAIN = (1, 3)
"""The tags of PCM and of floating point."""


class Layout(NamedTuple):
    """How samples lie in a file: frames a second, bytes a frame, bits a sample."""

    rate: int
    frame: int
    bits: int


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


def mute_wav(file: BinaryIO, spans: Spans) -> Muted | None:
    """What to silence in a WAV file; None if it is not one with uncompressed samples."""
    header = read_wav_header(file)
    if header is None or header.tag not in _PLAIN or not header.rate or not header.block_align:
        return None
    # To the end of the file, whatever length its header states: some readers go on to there.
    layout = Layout(header.rate, header.block_align, header.bits)
    return mute(layout, spans, header.data_offset, header.file_size)


def mute(layout: Layout, spans: Spans, begin: int, end: int, first: int = 0) -> Muted:
    """What to silence in the bytes `[begin, end)` of a file, which hold samples from frame `first` on."""
    rate, frame, bits = layout

    def at(place: int) -> int:
        return begin + max(0, place - first) * frame

    muted = [
        (at(int(start * rate)), end if isinf(stop) else min(end, at(int(stop * rate) + 1)))
        for start, stop in spans
    ]
    return Muted(tuple(muted), 0x80 if bits <= 8 else 0)
