"""Plain MP4 and M4A files: packets located by the file's own sample tables, decoded by FFmpeg's codec.

FFmpeg's MP4 demuxer keeps an index entry for every packet: 100 MB for ten hours at 48 kHz. Here the tables
(ISO/IEC 14496-12, boxes stts, stsc, stsz and stco or co64) stay in the file and are read a window at a time,
so memory does not grow with the recording.

Supports only the plain case: one self-contained AAC or ALAC track, not fragmented, with at most one edit. For
anything else `find_track` returns None and the caller falls back to FFmpeg's demuxer.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import BinaryIO, Literal, NamedTuple

import av
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame

from spool.errors import AudioUnreadable
from worker.audio.ffmpeg_base import FrameReader

_WINDOW_ROWS = 4096
_MAX_BOXES = 10_000
_AAC_TYPES = (0x40, 0x66, 0x67, 0x68)
_TRIMMED_SECONDS = 0.25


class Box(NamedTuple):
    """A box's body: `[start, end)` in the file."""

    kind: bytes
    start: int
    end: int


class Packet(NamedTuple):
    """Where a coded packet lies, and its decoding time and length in ticks of the track's clock."""

    offset: int
    size: int
    time: int
    ticks: int


@dataclass(frozen=True)
class Table:
    """Rows of big-endian integers in the file, of which at most one window is in memory."""

    file: BinaryIO
    start: int
    count: int
    row: str

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Every row in order; ends early where the file does."""
        unpack = struct.Struct(self.row)
        for first in range(0, self.count, _WINDOW_ROWS):
            rows = min(_WINDOW_ROWS, self.count - first)
            self.file.seek(self.start + first * unpack.size)
            data = self.file.read(rows * unpack.size)
            yield from unpack.iter_unpack(data[: len(data) // unpack.size * unpack.size])


@dataclass(frozen=True)
class Mp4Track:
    """One audio track; `skip` and `length` are the ticks before the edit begins and within it."""

    codec: Literal["aac", "alac"]
    config: bytes
    timescale: int
    skip: int
    length: int
    durations: Table
    chunks: Table
    offsets: Table
    sizes: Table
    fixed_size: int

    def packets(self) -> Iterator[Packet]:
        """The track's packets in decoding order, up to the end of the edit."""
        sizes = repeat((self.fixed_size,), self.sizes.count) if self.fixed_size else self.sizes.rows()
        ticks = chain.from_iterable(repeat(delta, count) for count, delta in self.durations.rows())
        time = 0
        for offset in self._packet_ranges(sizes):
            delta = next(ticks, 0)
            if time >= self.skip + self.length:
                return
            yield Packet(*offset, time, delta)
            time += delta

    def _packet_ranges(self, sizes: Iterator[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
        """Offset and size of each packet; the packets of a chunk are contiguous."""
        runs = self.chunks.rows()
        run, following = next(runs, None), next(runs, None)
        for number, (at,) in enumerate(self.offsets.rows(), 1):
            while following is not None and number >= following[0]:
                run, following = following, next(runs, None)
            for _ in range(run[1] if run is not None else 0):
                size = next(sizes, None)
                if size is None:
                    return
                yield at, size[0]
                at += size[0]


def find_track(file: BinaryIO) -> Mp4Track | None:
    """The only audio track of `file`, or None if the file is not the plain case."""
    try:
        return _find_track(file)
    except (struct.error, KeyError, IndexError):
        return None


def _find_track(file: BinaryIO) -> Mp4Track | None:
    top = _boxes(file, 0, file.seek(0, os.SEEK_END))
    movie = _boxes(file, *top[b"moov"][0][1:])
    if b"moof" in top or b"mvex" in movie:
        return None
    tracks = [_boxes(file, *box[1:]) for box in movie[b"trak"]]
    audio_tracks = [track for track in tracks if _is_audio(file, track)]
    if len(audio_tracks) != 1:
        return None
    (movie_scale,) = _numbers(file, movie[b"mvhd"][0], ">I", 20 if _version(file, movie[b"mvhd"][0]) else 12)
    return _read_track(file, audio_tracks[0], movie_scale)


def _is_audio(file: BinaryIO, track: dict[bytes, list[Box]]) -> bool:
    media = _boxes(file, *track[b"mdia"][0][1:])
    return _bytes(file, media[b"hdlr"][0], 8, 4) == b"soun"


def _read_track(file: BinaryIO, track: dict[bytes, list[Box]], movie_scale: int) -> Mp4Track | None:
    media = _boxes(file, *track[b"mdia"][0][1:])
    header = media[b"mdhd"][0]
    timescale, duration = _numbers(file, header, *((">IQ", 20) if _version(file, header) else (">II", 12)))
    information = _boxes(file, *media[b"minf"][0][1:])
    tables = _boxes(file, *information[b"stbl"][0][1:])
    coding = _codec_config(file, tables[b"stsd"][0])
    edit = _edit(file, track, movie_scale, timescale, duration)
    if coding is None or edit is None or not timescale or not _self_contained(file, information):
        return None
    fixed_size, count = _numbers(file, tables[b"stsz"][0], ">II", 4)
    wide = b"co64" in tables
    return Mp4Track(
        codec=coding[0],
        config=coding[1],
        timescale=timescale,
        skip=edit[0],
        length=edit[1],
        durations=_table(file, tables[b"stts"][0], ">II"),
        chunks=_table(file, tables[b"stsc"][0], ">III"),
        offsets=_table(file, tables[b"co64" if wide else b"stco"][0], ">Q" if wide else ">I"),
        sizes=Table(file, tables[b"stsz"][0].start + 12, count, ">I"),
        fixed_size=fixed_size,
    )


def _edit(
    file: BinaryIO, track: dict[bytes, list[Box]], movie_scale: int, timescale: int, duration: int
) -> tuple[int, int] | None:
    """Ticks to skip and ticks to play; None for edits left to FFmpeg's demuxer."""
    if b"edts" not in track:
        return 0, duration
    edit_list = _boxes(file, *track[b"edts"][0][1:])[b"elst"][0]
    row, size = (">QqI", 20) if _version(file, edit_list) else (">IiI", 12)
    (count,) = _numbers(file, edit_list, ">I", 4)
    if count != 1 or edit_list.end - edit_list.start < 8 + size:
        return None
    played, skip, rate = _numbers(file, edit_list, row, 8)
    if skip < 0 or skip > duration or rate != 0x10000 or not movie_scale:
        return None
    length = duration - skip
    trimmed = played * timescale // movie_scale
    # The movie's clock is coarse: only a real trim shortens the track, not a rounded length.
    if 0 < trimmed < length - _TRIMMED_SECONDS * timescale:
        length = trimmed
    return skip, length


def _self_contained(file: BinaryIO, information: dict[bytes, list[Box]]) -> bool:
    """Whether the media data are in this file."""
    references = _boxes(file, *information[b"dinf"][0][1:])[b"dref"][0]
    entries = [box for kind in _boxes(file, references.start + 8, references.end).values() for box in kind]
    return all(_bytes(file, entry, 3, 1) == b"\1" for entry in entries)


def _codec_config(file: BinaryIO, descriptions: Box) -> tuple[Literal["aac", "alac"], bytes] | None:
    """Codec and decoder configuration of a track with one sample description."""
    entries = [
        box for kind in _boxes(file, descriptions.start + 8, descriptions.end).values() for box in kind
    ]
    if len(entries) != 1 or _bytes(file, entries[0], 8, 2) != b"\0\0":
        return None
    (entry,) = entries
    inner = _boxes(file, entry.start + 28, entry.end)
    if entry.kind == b"mp4a":
        config = _aac_config(_bytes(file, inner[b"esds"][0], 4, 4096))
        return ("aac", config) if config else None
    if entry.kind == b"alac":
        box = inner[b"alac"][0]
        body = _bytes(file, box, 0, 64)
        return "alac", struct.pack(">I4s", len(body) + 8, b"alac") + body
    return None


def _aac_config(data: bytes) -> bytes | None:
    """The AudioSpecificConfig inside an ES descriptor (ISO/IEC 14496-1, 7.2.6)."""
    at, kind = 0, None
    while at + 2 <= len(data):
        tag, size, at = data[at], 0, at + 1
        while data[at] & 0x80:
            size, at = size << 7 | data[at] & 0x7F, at + 1
        size, at = size << 7 | data[at], at + 1
        if tag == 3:
            flags = data[at + 2]
            at += 3 + (2 if flags & 0x80 else 0) + (2 if flags & 0x20 else 0)
            at += 1 + data[at] if flags & 0x40 else 0
        elif tag == 4:
            kind, at = data[at], at + 13
        elif tag == 5:
            return data[at : at + size] if kind in _AAC_TYPES else None
        else:
            at += size
    return None


def _boxes(file: BinaryIO, start: int, end: int) -> dict[bytes, list[Box]]:
    """The boxes of `[start, end)` by kind; a box that does not fit is left out."""
    by_kind: dict[bytes, list[Box]] = {}
    for _ in range(_MAX_BOXES):
        if start + 8 > end:
            break
        file.seek(start)
        size, kind = struct.unpack(">I4s", file.read(8))
        body = start + 8
        if size == 1:
            (size,) = struct.unpack(">Q", file.read(8))
            body += 8
        elif size == 0:
            size = end - start
        if size < body - start or (start + size > end and kind != b"mdat"):
            break
        by_kind.setdefault(kind, []).append(Box(kind, body, start + size))
        start += size
    return by_kind


def _table(file: BinaryIO, box: Box, row: str) -> Table:
    (count,) = _numbers(file, box, ">I", 4)
    fits = (box.end - box.start - 8) // struct.calcsize(row)
    return Table(file, box.start + 8, min(count, fits), row)


def _version(file: BinaryIO, box: Box) -> int:
    return _bytes(file, box, 0, 1)[0]


def _numbers(file: BinaryIO, box: Box, row: str, at: int) -> tuple[int, ...]:
    return struct.unpack(row, _bytes(file, box, at, struct.calcsize(row)))


def _bytes(file: BinaryIO, box: Box, at: int, count: int) -> bytes:
    file.seek(box.start + at)
    return file.read(max(0, min(count, box.end - box.start - at)))


_MAX_PACKET = 1 << 20
_PROBED_PACKETS = 8


class NotPlainMp4(Exception):
    """This file must be read by FFmpeg's own demuxer."""


class Mp4Reader(FrameReader):
    """One open recording; see `worker.audio.base.Reader`."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Raises `NotPlainMp4` if there is no track of the plain kind, or its first packets give no frame."""
        super().__init__(name)
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        track = find_track(file)
        if track is None:
            raise NotPlainMp4
        self._track = track
        first = self._probe()
        self.rate = first.sample_rate
        self.channels = len(first.layout.channels)
        self.format = f"mp4/{track.codec}"
        self.expected_frames = round(track.length * self.rate / track.timescale)
        self.stated_seconds = track.length / track.timescale

    def _probe(self) -> AudioFrame:
        """The first frame: only the decoder knows the rate of AAC with spectral band replication."""
        decoder = _decoder(self._track)
        for packet, _ in zip(self._track.packets(), range(_PROBED_PACKETS), strict=False):
            try:
                for frame in decoder.decode(av.Packet(self._read(packet))):
                    return frame
            except (av.error.FFmpegError, AudioUnreadable) as error:
                raise NotPlainMp4 from error
        raise NotPlainMp4

    def _read(self, packet: Packet) -> bytes:
        if packet.size > _MAX_PACKET:
            raise AudioUnreadable(f"{self._name}: the container is damaged after {self._position}")
        if packet.offset >= self._size:
            return b""
        self._file.seek(packet.offset)
        return self._file.read(packet.size)

    def _frames(self) -> Iterator[tuple[AudioFrame, float | None]]:
        decoder = _decoder(self._track)
        scale = self._track.timescale
        self._skip = round(self._track.skip * self.rate / scale)
        for packet in self._track.packets():
            data = self._read(packet)
            if not data:
                return
            frames: list[AudioFrame] = []
            with self._tolerating_damage(packet.ticks / scale, last=len(data) < packet.size):
                frames = decoder.decode(av.Packet(data))
            time = (packet.time - self._track.skip) / scale
            yield from ((frame, time if len(frames) == 1 else None) for frame in frames)
        with self._tolerating_damage(0.0):
            yield from ((frame, None) for frame in decoder.decode(None))

    def close(self) -> None:
        """Nothing to release: the decoder is freed with its last reference."""


def _decoder(track: Mp4Track) -> AudioCodecContext:
    decoder = av.CodecContext.create(track.codec, "r")
    if not isinstance(decoder, AudioCodecContext):
        raise NotPlainMp4
    decoder.extradata = track.config
    decoder.thread_count = 1
    return decoder
