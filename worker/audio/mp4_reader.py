"""Plain MP4 and M4A: packets found by `worker.audio.mp4_track`, decoded by FFmpeg's codec, in flat memory."""

import os
from collections.abc import Iterator
from typing import BinaryIO

import av
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame

from spool.errors import AudioUnreadable
from worker.audio.content import mp4_is_cut
from worker.audio.decoding import Decoding
from worker.audio.mp4_track import Mp4Track, Packet, find_track

_MAX_PACKET = 1 << 20
_PROBED_PACKETS = 8


class NotPlainMp4(Exception):
    """FFmpeg's own demuxer has to read this file."""


class Mp4Reader(Decoding):
    """One open recording; see `worker.audio.reader.Reader`."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Raises `NotPlainMp4` where there is no track of the plain kind, or its codec stays silent."""
        super().__init__(name, cut=mp4_is_cut(file))
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

    def _probe(self) -> AudioFrame:
        """The first frame: only the decoder knows the rate of an AAC with spectral band replication."""
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
            raise AudioUnreadable(f"{self._name}: the container is damaged after {self._place}")
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
            with self._bearing_damage(packet.ticks / scale, last=len(data) < packet.size):
                frames = decoder.decode(av.Packet(data))
            time = (packet.time - self._track.skip) / scale
            yield from ((frame, time if len(frames) == 1 else None) for frame in frames)
        with self._bearing_damage(0.0):
            yield from ((frame, None) for frame in decoder.decode(None))

    def close(self) -> None:
        """Nothing is held: the decoder goes with the last reference."""


def _decoder(track: Mp4Track) -> AudioCodecContext:
    decoder = av.CodecContext.create(track.codec, "r")
    if not isinstance(decoder, AudioCodecContext):
        raise NotPlainMp4
    decoder.extradata = track.config
    decoder.thread_count = 1
    return decoder
