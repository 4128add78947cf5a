"""Compares the length that a WAV header declares with what the file holds.

Streaming recorders write a length of 0 or 0xFFFFFFFF, recorders that crash leave a stale length, and files
over 4 GiB wrap the 32-bit field. No audio may be lost because of a wrong header: where the two disagree, the
samples are read to the end of the file, with a warning. The one exception is a tail that is itself a sequence
of well-formed RIFF chunks (tags, cue points), which is not audio.

Reads RIFF, RIFX and RF64 (EBU Tech 3306); decodes no samples.
"""

import os
import struct
from dataclasses import dataclass
from typing import BinaryIO

_PCM, _FLOAT, _ALAW, _MULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_SUBTYPES = {
    (_PCM, 8): "PCM_U8",
    (_PCM, 16): "PCM_16",
    (_PCM, 24): "PCM_24",
    (_PCM, 32): "PCM_32",
    (_FLOAT, 32): "FLOAT",
    (_FLOAT, 64): "DOUBLE",
    (_ALAW, 8): "ALAW",
    (_MULAW, 8): "ULAW",
}
_MAX_CHUNKS = 4096
_STREAMED = ((0, 0), (0x7FFF_0000, 0x8000_0000), (0xFFFF_0000, 0xFFFF_FFFF))


def is_placeholder(length: int) -> bool:
    """Whether this 32-bit length is what writers leave that could not go back to fill it in."""
    return any(first <= length <= last for first, last in _STREAMED)


@dataclass(frozen=True)
class WavHeader:
    """The contents of a WAV header; sizes and offsets in bytes."""

    tag: int
    channels: int
    rate: int
    block_align: int
    bits: int
    big_endian: bool
    data_offset: int
    declared: int
    file_size: int
    tail_is_chunks: bool
    byte_rate: int = 0
    """Bytes of audio a second, as stated."""
    samples: int | None = None
    """Sample frames by the `fact` chunk, which codings other than plain samples have."""

    @property
    def present(self) -> int:
        """Bytes of audio that the file holds."""
        rest = self.file_size - self.data_offset
        return min(self.declared, rest) if self.tail_is_chunks else rest

    @property
    def subtype(self) -> str | None:
        """libsndfile's name of the coding, if the samples are uncompressed; else None."""
        subtype = _SUBTYPES.get((self.tag, self.bits))
        plain = self.channels * self.bits // 8 == self.block_align
        return subtype if plain and self.channels > 0 else None

    @property
    def is_wrong(self) -> bool:
        """Whether the declared length is off by a sample frame or more."""
        return abs(self.declared - self.present) >= max(1, self.block_align)


def read_wav_header(file: BinaryIO) -> WavHeader | None:
    """The header of `file`, or None if it has no readable `fmt ` and `data` chunk."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    magic = file.read(12)
    if len(magic) < 12 or magic[:4] not in (b"RIFF", b"RIFX", b"RF64") or magic[8:] != b"WAVE":
        return None
    order = ">" if magic[:4] == b"RIFX" else "<"
    fmt: bytes | None = None
    long_size: int | None = None
    samples: int | None = None
    offset = 12
    for _ in range(_MAX_CHUNKS):
        file.seek(offset)
        head = file.read(8)
        if len(head) < 8:
            return None
        chunk, length = head[:4], struct.unpack(order + "I", head[4:])[0]
        if chunk == b"data":
            declared = long_size if long_size is not None and length == 0xFFFFFFFF else length
            return _header(file, fmt, order == ">", offset + 8, declared, size, samples)
        if chunk == b"fmt ":
            fmt = file.read(min(length, 40))
        elif chunk == b"fact" and length >= 4:
            (samples,) = struct.unpack(order + "I", file.read(4).ljust(4, b"\0"))
        elif chunk == b"ds64" and length >= 16:
            long_size = struct.unpack("<Q", file.read(16)[8:].ljust(8, b"\0"))[0]
        offset += 8 + length + (length & 1)
    return None


def _header(
    file: BinaryIO,
    fmt: bytes | None,
    big: bool,
    data_offset: int,
    declared: int,
    size: int,
    samples: int | None,
) -> WavHeader | None:
    if fmt is None or len(fmt) < 16:
        return None
    tag, channels, rate, byte_rate, align, bits = struct.unpack((">" if big else "<") + "HHIIHH", fmt[:16])
    if tag == _EXTENSIBLE and len(fmt) >= 26:
        tag = struct.unpack((">" if big else "<") + "H", fmt[24:26])[0]
    tail = data_offset + declared
    # A pad byte follows an odd data chunk; some writers forget it.
    chunks = tail <= size and any(_is_chunks(file, at, size, big) for at in (tail + (declared & 1), tail))
    # Streaming writers leave a length of 0; the audio is empty only if the file ends there too.
    is_trusted = chunks and (declared > 0 or tail >= size)
    return WavHeader(
        tag, channels, rate, align, bits, big, data_offset, declared, size, is_trusted, byte_rate, samples
    )


def _is_chunks(file: BinaryIO, offset: int, size: int, big: bool) -> bool:
    """Whether `[offset, size)` is empty or well-formed chunks up to the end, give or take 7 bytes."""
    for _ in range(_MAX_CHUNKS):
        if size - offset < 8:
            return True
        file.seek(offset)
        head = file.read(8)
        length = struct.unpack((">" if big else "<") + "I", head[4:])[0]
        name_is_text = all(0x20 <= byte < 0x7F for byte in head[:4])
        if not name_is_text or offset + 8 + length > size:
            return False
        offset += 8 + length + (length & 1)
    return False


class DataWindow:
    """The audio bytes of a file as a file of their own, with the methods of libsndfile's virtual files."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        self._file = file
        self._offset = offset
        self._size = size
        self._at = 0
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move as `io.IOBase.seek` does, within the window."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = min(max(0, base + offset), self._size)
        return self._at

    def tell(self) -> int:
        """The position of the next read."""
        return self._at

    def read(self, count: int = -1) -> bytes:
        """Up to `count` bytes. An exception cannot pass through libsndfile, so it is kept in `error`."""
        left = self._size - self._at
        try:
            self._file.seek(self._offset + self._at)
            data = self._file.read(left if count < 0 else min(count, left))
        except OSError as error:
            self.error = error
            return b""
        self._at += len(data)
        return data

    def write(self, _data: bytes) -> int:
        """Refused: libsndfile requires the method but never calls it on a file open for reading."""
        raise OSError("this file is read-only")
