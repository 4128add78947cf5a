"""The length of a recording according to its header, by which a truncated file is noticed.

Reads only the container and decodes nothing. FFmpeg's length is used for the demuxers that read an exact
length from the header (`DEMUXERS`); all others estimate it from the size of the file, which does not show
what is missing.

Formats: WAV and RF64 (EBU Tech 3306), Wave64 (Sony), AIFF and AIFF-C (Apple, 1991), CAF (Apple, 2006), AU
(NeXT/Sun), FLAC (RFC 9639, 8.2), MPEG audio with a Xing, Info or VBRI header, Ogg (RFC 3533), MP4 (ISO/IEC
14496-12), Matroska (RFC 9559), AVI, ASF (Microsoft, 3.2). AMR, ADTS, AC-3, MP2 and MPEG streams state no
length.
"""

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from spool.recordings.wav_header import is_placeholder, read_wav_header
from worker.audio.sniff import content_head, mp3_stated_frames, mp4_structure, ogg_has_end

EXACT = 0.001
"""Tolerance in seconds where the header counts samples."""
PADDED = 0.5
"""Tolerance in seconds where a codec's packets, priming and padding make the count inexact."""
DEMUXERS = frozenset({"ape", "ast", "dsf", "flv", "mpc", "mpc8", "nistsphere", "tak", "tta", "wv"})
"""FFmpeg's demuxers whose length comes from the header, however much of the file is present."""

_MAX_CHUNKS = 4096
_LONGEST = 1e8
"""Seconds (three years); a header that states more is damaged."""
_AU_BITS = {1: 8, 2: 8, 3: 16, 4: 24, 5: 32, 6: 32, 7: 64, 23: 4, 25: 3, 26: 5, 27: 8}
_AIFC_PLAIN = frozenset(b"NONE sowt twos fl32 fl64 FL32 ulaw alaw ULAW ALAW".split())
_AIFC_FRAMES = {b"ima4": 64}
_ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_SEGMENT = b"\x18\x53\x80\x67"


@dataclass(frozen=True, slots=True)
class StatedLength:
    """What a file says about its own length. `seconds` is None if it states none. `cut`: whether its
    structure shows that the end is missing; None if the structure does not tell. `slack`: tolerance in
    seconds."""

    seconds: float | None = None
    cut: bool | None = None
    slack: float = PADDED


@dataclass(frozen=True, slots=True)
class Length:
    """How much of the stated length was read. `complete` is None if the file states neither a length nor an
    end, `missing_seconds` if unknown."""

    complete: bool | None
    expected_seconds: float | None
    missing_seconds: float | None


def compare_length(stated: StatedLength, seconds: float) -> Length:
    """Compare `seconds` of audio with what the file states."""
    if stated.seconds is None:
        return Length(None if stated.cut is None else not stated.cut, None, None)
    missing = stated.seconds - seconds
    if missing <= stated.slack:
        return Length(True, stated.seconds, 0.0)
    return Length(False, stated.seconds, missing)


def describe_shortfall(length: Length) -> str | None:
    """A sentence about what is missing from a truncated file; None if nothing is known to be missing."""
    if length.complete is not False:
        return None
    if length.expected_seconds is None or length.missing_seconds is None:
        return "the file was cut off: its container has no end, and does not state how much is missing"
    return (
        f"the file was cut off: its header states {length.expected_seconds:.3f} s, "
        f"but {length.missing_seconds:.3f} s are missing"
    )


def read_stated_length(file: BinaryIO) -> StatedLength:
    """The length stated in the header of `file`; moves the file's position."""
    size = file.seek(0, os.SEEK_END)
    head = content_head(file)
    for matches, read in _READERS:
        if matches(head):
            try:
                stated = read(file, size)
                seconds = stated.seconds
                return stated if seconds is None or 0 < seconds < _LONGEST else StatedLength()
            except (struct.error, ZeroDivisionError, OverflowError, IndexError):
                return StatedLength()  # the decoder reports what is wrong with the file
    return StatedLength()


def _wav(file: BinaryIO, size: int) -> StatedLength:
    header = read_wav_header(file)
    if header is None or is_placeholder(header.declared) or header.declared < header.present:
        return StatedLength()
    if header.subtype is not None:
        return StatedLength(header.declared / (header.rate * header.block_align), slack=EXACT)
    if header.samples is not None and not is_placeholder(header.samples):
        return StatedLength(header.samples / header.rate)
    if header.byte_rate:
        return StatedLength(
            header.declared / header.byte_rate, slack=max(PADDED, 0.01 * size / header.byte_rate)
        )
    return StatedLength(cut=header.is_wrong or None)


def _w64(file: BinaryIO, size: int) -> StatedLength:
    """Each chunk has a GUID and a 64-bit size that includes both, and begins at a multiple of eight bytes."""
    at, rate, align = 40, 0, 0
    for _ in range(_MAX_CHUNKS):
        if at + 24 > size:
            break
        file.seek(at)
        head = file.read(24)
        name, length = head[:4], struct.unpack("<Q", head[16:24])[0]
        if name == b"fmt ":
            rate, align = struct.unpack("<4xI4xH", file.read(14))
        elif name == b"data":
            return StatedLength((length - 24) / (rate * align), slack=EXACT)
        at += max(24, (length + 7) & ~7)
    return StatedLength()


def _aiff(file: BinaryIO, size: int) -> StatedLength:
    frames, rate, codec = None, 0.0, b"NONE"
    for name, start, length in _iff_chunks(file, 12, size, ">"):
        if name == b"COMM":
            file.seek(start)
            body = file.read(min(length, 22))
            frames = struct.unpack(">I", body[2:6])[0]
            exponent, mantissa = struct.unpack(">HQ", body[8:18])
            rate = mantissa * 2.0 ** ((exponent & 0x7FFF) - 16383 - 63)
            codec = body[18:22] or codec
    if not frames or frames == 0xFFFFFFFF:
        return StatedLength()
    plain = codec in _AIFC_PLAIN
    return StatedLength(frames * _AIFC_FRAMES.get(codec, 1) / rate, slack=EXACT if plain else PADDED)


def _iff_chunks(file: BinaryIO, at: int, size: int, order: str) -> Iterator[tuple[bytes, int, int]]:
    """Name, start and length of each chunk from `at` on; the last may run past the file's end."""
    for _ in range(_MAX_CHUNKS):
        if at + 8 > size:
            return
        file.seek(at)
        name, length = struct.unpack(f"{order}4sI", file.read(8))
        yield name, at + 8, length
        at += 8 + length + (length & 1)


def _caf(file: BinaryIO, size: int) -> StatedLength:
    at, rate, packet_bytes, packet_frames, counted = 8, 0.0, 0, 0, None
    data: int | None = None
    for _ in range(_MAX_CHUNKS):
        if at + 12 > size:
            break
        file.seek(at)
        head = file.read(12)
        name, length = struct.unpack(">4sq", head)
        if name == b"desc":
            rate, packet_bytes, packet_frames = struct.unpack(">d8xII", file.read(24))
        elif name == b"pakt":
            _, counted = struct.unpack(">qq", file.read(16))
        elif name == b"data":
            data = length
        if length < 0:
            break
        at += 12 + length
    if counted:
        return StatedLength(counted / rate)
    if data is None or data < 4:
        return StatedLength()
    if packet_bytes and packet_frames:
        exact = EXACT if packet_frames == 1 else PADDED
        return StatedLength((data - 4) // packet_bytes * packet_frames / rate, slack=exact)
    return StatedLength(cut=at > size or None)


def _au(file: BinaryIO, _size: int) -> StatedLength:
    file.seek(0)
    _, _, length, coding, rate, channels = struct.unpack(">4s5I", file.read(24))
    bits = _AU_BITS.get(coding)
    if bits is None or length in (0, 0xFFFFFFFF):
        return StatedLength()
    return StatedLength(length * 8 / (bits * channels * rate), slack=EXACT if bits >= 8 else PADDED)


def _flac(file: BinaryIO, _size: int) -> StatedLength:
    """STREAMINFO: after 10 bytes 20 bits of rate, 8 of channels and width, 36 of samples; 0 is unknown."""
    start = _after_tags(file, b"fLaC")
    file.seek(start + 18)
    bits = int.from_bytes(file.read(8), "big")
    rate, samples = bits >> 44, bits & (1 << 36) - 1
    return StatedLength(samples / rate, slack=EXACT) if samples else StatedLength()


def _after_tags(file: BinaryIO, magic: bytes) -> int:
    file.seek(0)
    return max(0, file.read(1 << 20).find(magic))


def _mp3(file: BinaryIO, _size: int) -> StatedLength:
    stated = mp3_stated_frames(file)
    return StatedLength() if stated is None else StatedLength(stated[0] / stated[1])


def _ogg(file: BinaryIO, _size: int) -> StatedLength:
    return StatedLength(cut=not ogg_has_end(file))


def _mp4(file: BinaryIO, _size: int) -> StatedLength:
    structure = mp4_structure(file)  # the reader, which knows the audio track, supplies the length
    return StatedLength(cut=structure.cut or None)


def _matroska(file: BinaryIO, size: int) -> StatedLength:
    """The segment's size, unless a live writer left it open; the duration comes from FFmpeg."""
    file.seek(0)
    head = file.read(4096)
    at = head.find(_SEGMENT)
    if at < 0 or at + 12 > len(head):
        return StatedLength()
    first = head[at + 4]
    width = 9 - first.bit_length()
    value = int.from_bytes(head[at + 4 : at + 4 + width], "big") & (1 << 7 * width) - 1
    unknown = value == (1 << 7 * width) - 1
    return StatedLength() if unknown else StatedLength(cut=at + 4 + width + value > size)


def _avi(file: BinaryIO, size: int) -> StatedLength:
    file.seek(4)
    (length,) = struct.unpack("<I", file.read(4))
    return StatedLength() if is_placeholder(length) else StatedLength(cut=8 + length > size + 1)


def _asf(file: BinaryIO, _size: int) -> StatedLength:
    """The file properties' play duration (100 ns) less the preroll (ms), unless it is a broadcast."""
    file.seek(0)
    head = file.read(1 << 16)
    at = head.find(_ASF_PROPERTIES)
    if at < 0:
        return StatedLength()
    played, _, preroll, flags = struct.unpack("<QQQI", head[at + 64 : at + 92])
    return StatedLength() if flags & 1 else StatedLength(played / 1e7 - preroll / 1e3)


def _starts_with(*magics: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(magics)


def _has_form(outer: tuple[bytes, ...], *kinds: bytes) -> Callable[[bytes], bool]:
    return lambda head: head[:4] in outer and head[8:12] in kinds


_READERS: tuple[tuple[Callable[[bytes], bool], Callable[[BinaryIO, int], StatedLength]], ...] = (
    (_has_form((b"RIFF", b"RIFX", b"RF64"), b"WAVE"), _wav),
    (_has_form((b"RIFF",), b"AVI "), _avi),
    (
        lambda head: (
            head[:4] == b"riff" and head[4:16] == b"\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
        ),
        _w64,
    ),
    (_has_form((b"FORM",), b"AIFF", b"AIFC"), _aiff),
    (_starts_with(b"caff"), _caf),
    (_starts_with(b".snd"), _au),
    (_starts_with(b"fLaC"), _flac),
    (_starts_with(b"OggS"), _ogg),
    (_starts_with(b"\x1a\x45\xdf\xa3"), _matroska),
    (_starts_with(b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"), _asf),
    (lambda head: head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"skip", b"free"), _mp4),
    (lambda head: len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2, _mp3),
)
