"""Detects a file's container from its bytes, and what the container says about its structure.

Knows magic numbers, ID3 tags, Ogg pages, MP4 boxes and MP3's Xing header; decodes nothing.
"""

import os
import struct
from typing import BinaryIO, Literal, NamedTuple

Content = Literal["wav", "flac", "ogg", "sndfile", "mp3", "mp4", "other"]

_TAIL_BYTES = 1 << 16
_MAX_TAGS = 64  # more than any player writes; bounds the time spent on a file of nothing but tags
_MAX_BOXES = 1 << 20


def content_of(file: BinaryIO) -> Content:
    """The kind of container that `file` begins with, whatever its name."""
    head = content_head(file)
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"fLaC":
        return "flac"
    if head[:4] == b"OggS":
        return "ogg"
    if head[:4] in (b".snd", b"caff") or (head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC")):
        return "sndfile"
    if head[4:8] in (b"ftyp", b"moov", b"mdat"):
        return "mp4"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2:
        return "mp3"  # MPEG frame sync, layer III
    return "other"


def content_head(file: BinaryIO, count: int = 16) -> bytes:
    """The first bytes after any ID3v2 tags."""
    offset = 0
    for _ in range(_MAX_TAGS):
        file.seek(offset)
        head = file.read(max(count, 10))
        if head[:3] != b"ID3" or len(head) < 10:
            return head
        size = 0
        for byte in head[6:10]:
            size = size << 7 | byte & 0x7F
        offset += 10 + size + (10 if head[5] & 0x10 else 0)
    return b""


def ogg_is_chained(file: BinaryIO) -> bool:
    """Whether the last logical stream of an Ogg file differs from the first (joined recordings)."""
    file.seek(0)
    first = file.read(27)
    last = _last_ogg_page(file)
    return last is not None and len(first) == 27 and first[14:18] != last[14:18]


def ogg_has_end(file: BinaryIO) -> bool:
    """Whether the last Ogg page is marked as the stream's end; a truncated file has no such page."""
    last = _last_ogg_page(file)
    return last is not None and bool(last[5] & 4)


def _last_ogg_page(file: BinaryIO) -> bytes | None:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read(_TAIL_BYTES)
    at = tail.rfind(b"OggS")
    page = tail[at : at + 27] if at >= 0 else b""
    return page if len(page) == 27 else None


class Mp4Structure(NamedTuple):
    """cut: a box runs past the end of the file, or the index is missing after the media data. fragmented: the
    index comes in fragments."""

    cut: bool
    fragmented: bool


def mp4_structure(file: BinaryIO) -> Mp4Structure:
    """What the outermost boxes of an MP4 file say."""
    size = file.seek(0, os.SEEK_END)
    kinds: set[bytes] = set()
    offset = 0
    for _ in range(_MAX_BOXES):
        if offset + 8 > size:
            is_open = b"mdat" in kinds and not kinds & {b"moov", b"moof"}
            return Mp4Structure(offset != size or is_open, b"moof" in kinds)
        file.seek(offset)
        length, kind = struct.unpack(">I4s", file.read(8))
        if length == 1:
            length = int.from_bytes(file.read(8), "big")
        elif length == 0:
            length = size - offset
        if length < 8:
            break
        kinds.add(kind)
        offset += length
    return Mp4Structure(False, b"moof" in kinds)


def mp3_stated_frames(file: BinaryIO) -> tuple[int, int] | None:
    """Sample frames stated by an MP3's Xing, Info or VBRI header, less the encoder's delay and padding where
    stated, and the sample rate in hertz; None without such a header."""
    head = content_head(file, 2048)
    if len(head) < 64:
        return None
    version = head[1] >> 3 & 3
    rate = (44_100, 48_000, 32_000, 0)[head[2] >> 2 & 3] >> (0 if version == 3 else 1 if version == 2 else 2)
    samples = 1152 if version == 3 else 576
    if not rate:
        return None
    if head[36:40] == b"VBRI":
        return int.from_bytes(head[50:54], "big") * samples, rate
    at = max(head.find(b"Xing", 4, 64), head.find(b"Info", 4, 64))
    if at < 0 or len(head) < at + 12:
        return None
    flags, frames = struct.unpack(">II", head[at + 4 : at + 12])
    if not flags & 1:
        return None
    after = at + 12 + (4 if flags & 2 else 0) + (100 if flags & 4 else 0) + (4 if flags & 8 else 0)
    trimmed = 0
    if head[after : after + 4] in (b"LAME", b"Lavc", b"Lavf"):
        both = int.from_bytes(head[after + 21 : after + 24], "big")
        trimmed = (both >> 12) + (both & 0xFFF)
    return max(0, frames * samples - trimmed), rate
