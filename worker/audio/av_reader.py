"""M4A, MP4, WEBM, MP3 and whatever else FFmpeg's libraries decode, through PyAV, packet by packet.

MP3 is here and not with libsndfile: the libmpg123 inside libsndfile writes to the process's standard error,
ends a file of joined MP3s at the length that the first one's header states, and gives up at a kilobyte of
damage.

FFmpeg is confined to the one open file: only containers that hold their own media are allowed (no
playlists, no concat scripts, no devices), and no protocol, so that an uploaded file cannot make it open
another file or address.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import BinaryIO

import av
import av.error
import av.logging
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream as AvStream
from av.packet import Packet
from av.stream import Discard

from spool.errors import AudioTruncated, AudioUnreadable
from worker.audio.content import Content, mp3_promised_frames, mp4_is_cut
from worker.audio.reader import Block, Samples, at_time, block_frames

av.logging.set_level(None)

_CONTAINERS = (
    "aa,aac,ac3,ac4,aiff,amr,amrnb,amrwb,ape,asf,asf_o,ast,au,avi,caf,codec2,dsf,dss,dts,dtshd,dv,eac3,flac,flv,"
    "g722,g723_1,g726,g728,g729,gsm,gxf,iff,ilbc,ircam,latm,loas,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mp3,mpc,"
    "mpc8,mpeg,mpegts,mxf,nistsphere,nsv,nut,ogg,oma,qcp,rm,shn,sln,sox,tak,truehd,mlp,tta,voc,w64,wav,wtv,wv,xwma"
)
_GAP_SECONDS = 0.1
_MAX_GAP_SECONDS = 3600.0
_MAX_LOST_SECONDS = 0.5
_SHORT_SECONDS = 1.0
_SCALES = {
    "u8": 128.0,
    "s16": 32768.0,
    "s32": 2147483648.0,
    "s64": 9223372036854775808.0,
    "flt": 1.0,
    "dbl": 1.0,
}


class AvReader:
    """One open recording; see `worker.audio.reader.Reader`."""

    def __init__(self, file: BinaryIO, name: str, content: Content) -> None:
        """Raises `AudioUnreadable` or `AudioTruncated` where FFmpeg finds no audio in `file`."""
        self._name = name
        self.warnings: list[str] = []
        self._cut = content == "mp4" and mp4_is_cut(file)
        self._promised = mp3_promised_frames(file) if content == "mp3" else None
        file.seek(0)
        try:
            self._container = av.open(
                file,
                mode="r",
                metadata_errors="replace",
                options={"format_whitelist": _CONTAINERS, "protocol_whitelist": ""},
            )
        except (av.error.FFmpegError, ValueError) as error:
            raise self._not_audio(error) from error
        try:
            self._stream = self._choose()
        except BaseException:
            self._container.close()
            raise
        context = self._stream.codec_context
        context.thread_count = 1
        self.rate = int(context.sample_rate)
        self.channels = int(context.channels)
        self.format = f"{self._container.format.name.split(',')[0]}/{context.name}"
        self.expected_frames = self._expected()
        self._clock = _Clock(self._start())
        self._lost = 0.0

    def _not_audio(self, error: Exception) -> AudioUnreadable | AudioTruncated:
        if self._cut:
            return AudioTruncated(f"{self._name}: the MP4 file ends before its index (moov): it was cut off")
        cause = getattr(error, "strerror", None) or str(error)
        return AudioUnreadable(f"{self._name}: the content is not audio that can be decoded ({cause})")

    def _choose(self) -> AvStream:
        stream = self._container.streams.best("audio")
        if not isinstance(stream, AvStream):
            raise AudioUnreadable(f"{self._name}: the file holds no audio track")
        if stream.codec_context is None or stream.codec_context.sample_rate <= 0:
            raise AudioUnreadable(f"{self._name}: no decoder or no sample rate for the audio track")
        for other in self._container.streams:
            if other.index != stream.index:
                other.discard = Discard.all
        if len(self._container.streams.audio) > 1:
            count = len(self._container.streams.audio)
            self.warnings.append(f"the file holds {count} audio tracks: track {stream.index} was read")
        return stream

    def _start(self) -> Fraction:
        """Where the container's clock begins, in seconds; an audio track may begin later than its film."""
        start = self._container.start_time
        return Fraction(start, av.time_base) if start is not None else Fraction(0)

    def _expected(self) -> int | None:
        """Frames as promised, where the container's promise is exact enough to call a short file cut off."""
        kind = self._container.format.name
        seconds: float | None = None
        if self._promised is not None:
            return self._promised
        if kind.startswith("mov") and self._stream.duration is not None:
            seconds = float(self._stream.duration * (self._stream.time_base or 0))
        elif kind.startswith("matroska") and len(self._container.streams) == 1 and self._container.duration:
            seconds = self._container.duration / av.time_base
        return round(seconds * self.rate) if seconds is not None else None

    def blocks(self) -> Iterator[Block]:
        """Every sample once, about a second at a time; pauses in the container's clock come as silence."""
        pending: list[Samples] = []
        rate = self.rate
        count = 0
        for samples, sample_rate in self._pieces():
            if pending and (sample_rate != rate or samples.shape[1] != pending[0].shape[1]):
                yield Block(np.concatenate(pending), rate)
                pending, count = [], 0
            rate = sample_rate
            pending.append(samples)
            count += len(samples)
            if count >= block_frames(rate, samples.shape[1]):
                yield Block(np.concatenate(pending), rate)
                pending, count = [], 0
        if pending:
            yield Block(np.concatenate(pending), rate)
        self._check_end()

    def _pieces(self) -> Iterator[tuple[Samples, int]]:
        for packet in self._packets():
            for frame in self._decode(packet):
                samples = _to_float(frame)
                start = frame.pts * frame.time_base if frame.pts is not None and frame.time_base else None
                for gap in self._clock.gap(start, len(samples), frame.sample_rate):
                    yield np.zeros((gap, samples.shape[1]), dtype=np.float32), frame.sample_rate
                yield samples, frame.sample_rate

    def _packets(self) -> "Iterator[Packet[AvStream]]":
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
            except av.error.FFmpegError as error:
                if isinstance(error, OSError):
                    raise
                place = f"{self._clock.seconds:.3f} s"
                raise AudioUnreadable(f"{self._name}: the container is damaged after {place}") from error
            if packet is None:
                return
            yield packet

    def _decode(self, packet: "Packet[AvStream]") -> list[AudioFrame]:
        """The packet's frames. Damage shorter than a word is passed over with a warning."""
        try:
            return packet.decode()
        except av.error.FFmpegError as error:
            length = float((packet.duration or 0) * (packet.time_base or 0)) or 0.1
            self._lost += length
            place = f"{self._clock.seconds:.3f} s"
            if self._lost > _MAX_LOST_SECONDS:
                expected = self.expected_frames
                if self._cut or (expected is not None and packet.is_corrupt):
                    return []
                raise AudioUnreadable(f"{self._name}: the audio is damaged around {place}") from error
            self.warnings.append(f"a damaged packet ({length:.3f} s) at {place} could not be decoded")
            return []

    def _check_end(self) -> None:
        for text in self._clock.notes():
            self.warnings.append(text)
        expected = self.expected_frames
        if expected is None or expected - self._clock.seconds * self.rate <= _SHORT_SECONDS * self.rate:
            if self._cut and self._clock.seconds > 0:
                self.warnings.append("the file is shorter than its container says: it may have been cut off")
            return
        raise AudioTruncated(
            f"{self._name}: the file ends after {self._clock.seconds:.3f} s, "
            f"its header promises {at_time(expected, self.rate)}: it was cut off"
        )

    def close(self) -> None:
        """Close FFmpeg's side; the caller's file stays open."""
        self._container.close()


class _Clock:
    """Where the decoded samples stand against the container's timestamps."""

    def __init__(self, start: Fraction) -> None:
        self._start = start
        self._filled = 0.0
        self._gaps = 0
        self._origin = start
        self._since = Fraction(0)
        self.seconds = 0.0

    def gap(self, pts: Fraction | None, count: int, rate: int) -> Iterator[int]:
        """Lengths of silence in frames, each a second at most, due before `count` samples at `pts`."""
        if pts is not None:
            ahead = float(pts - self._origin - self._since)
            if _GAP_SECONDS < ahead <= _MAX_GAP_SECONDS:
                missing = round(ahead * rate)
                self._gaps += 1
                self._filled += missing / rate
                self._advance(missing, rate)
                while missing > 0:
                    yield min(missing, rate)
                    missing -= rate
            elif abs(ahead) > _GAP_SECONDS:
                # A clock that jumps back or by more than an hour is a joined file's: go on from there.
                self._origin, self._since = pts, Fraction(0)
        self._advance(count, rate)

    def _advance(self, count: int, rate: int) -> None:
        self._since += Fraction(count, rate)
        self.seconds += count / rate

    def notes(self) -> Iterator[str]:
        """What a reader of the transcript should know."""
        if self._gaps:
            yield f"{self._gaps} pauses in the container's clock ({self._filled:.2f} s) were read as silence"


def _to_float(frame: AudioFrame) -> Samples:
    """`[n, channels]` float32, full scale 1, from any of FFmpeg's sample formats."""
    values = frame.to_ndarray()
    channels = len(frame.layout.channels)
    values = values.T if frame.format.is_planar else values.reshape(-1, channels)
    kind = frame.format.name.removesuffix("p")
    scaled = values.astype(np.float32)
    if kind == "u8":
        scaled -= 128.0
    if _SCALES[kind] != 1.0:
        scaled /= np.float32(_SCALES[kind])
    return np.ascontiguousarray(scaled)
