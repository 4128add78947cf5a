"""M4A, MP4, WEBM, MP3 and everything else FFmpeg's libraries decode, through PyAV, packet by packet.

MP3 is read here rather than by libsndfile, whose libmpg123 writes to standard error, ends a file of joined
MP3s at the length in the first header, and gives up after a kilobyte of damage.

FFmpeg is confined to the one open file: only containers that hold their own media are allowed (no
playlists, no concat scripts, no devices), and no protocol, so that an uploaded file cannot make it open
another file or address.
"""

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

import av
import av.error
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream as AvStream
from av.codec.context import CodecContext
from av.packet import Packet
from av.stream import Discard

from spool.errors import AudioTruncated, AudioUnreadable
from worker.audio.ffmpeg_base import MAX_FRAME_VALUES, Clock, FrameReader
from worker.audio.sniff import Content, Mp4Structure, mp3_stated_frames, mp4_structure
from worker.audio.stated_length import DEMUXERS

if TYPE_CHECKING:
    from av.audio.codeccontext import AudioCodecContext

_CONTAINERS = (
    "aa,aac,ac3,ac4,aiff,amr,amrnb,amrwb,ape,asf,asf_o,ast,au,avi,caf,codec2,dsf,dss,dts,dtshd,dv,eac3,flac,flv,"
    "g722,g723_1,g726,g728,g729,gsm,gxf,iff,ilbc,ircam,latm,loas,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mp3,mpc,"
    "mpc8,mpeg,mpegts,mxf,nistsphere,nsv,nut,ogg,oma,qcp,rm,shn,sln,sox,tak,truehd,mlp,tta,voc,w64,wav,wtv,wv,xwma"
)
_DECODERS = {"amrnb": "libopencore_amrnb", "amrwb": "libopencore_amrwb"}
"""FFmpeg's own decoders of AMR refuse the frames that stand for silence (DTX)."""


class _Bounded:
    """The file as FFmpeg sees it. A damaged index can make it seek to impossible offsets; those fail."""

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read
        self.tell = file.tell
        self._file = file

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """The new position, or for an impossible offset the error that FFmpeg's own files return."""
        try:
            return self._file.seek(offset, whence)
        except OSError as error:
            # Raised, it would be mistaken for a failing disk.
            if error.errno != errno.EINVAL:
                raise
            return -errno.EINVAL
        except OverflowError:
            return -errno.EINVAL


class AvReader(FrameReader):
    """One open recording; see `worker.audio.base.Reader`."""

    def __init__(self, file: BinaryIO, name: str, content: Content) -> None:
        """Raises `AudioUnreadable` or `AudioTruncated` where FFmpeg finds no audio in `file`."""
        super().__init__(name)
        self._mp4 = mp4_structure(file) if content == "mp4" else Mp4Structure(False, False)
        by_header = mp3_stated_frames(file) if content == "mp3" else None
        self._size = file.seek(0, os.SEEK_END)
        self._file = file
        file.seek(0)
        try:
            self._container = av.open(
                _Bounded(file),
                mode="r",
                metadata_errors="replace",
                options={"format_whitelist": _CONTAINERS, "protocol_whitelist": ""},
            )
        except (av.error.FFmpegError, ValueError) as error:
            raise self._open_error(error) from error
        try:
            self._stream = self._choose_stream()
        except BaseException:
            self._container.close()
            raise
        context: CodecContext = self._stream.codec_context
        self.format = f"{self._container.format.name.split(',')[0]}/{context.name}"
        if (decoder := _DECODERS.get(context.name)) in av.codecs_available:
            context = CodecContext.create(decoder, "r")
        self._decoder = cast("AudioCodecContext", context)
        context.thread_count = 1
        self.rate = int(self._stream.codec_context.sample_rate)
        self.channels = int(self._stream.codec_context.channels)
        # FFmpeg reads this when the first packet opens the decoder: a larger frame counts as damaged.
        context.options = {"max_samples": str(MAX_FRAME_VALUES // max(1, self.channels))}
        self.stated_seconds = self._read_stated_seconds()
        if self.stated_seconds is not None:
            self.expected_frames = round(self.stated_seconds * self.rate)
        elif by_header is not None:
            self.expected_frames = by_header[0]
        self._clock = Clock(self._start_seconds())

    def _open_error(self, error: Exception) -> AudioUnreadable | AudioTruncated:
        if self._mp4.cut:
            return AudioTruncated(f"{self._name}: the MP4 file ends before its index (moov): it was cut off")
        cause = getattr(error, "strerror", None) or str(error)
        return AudioUnreadable(f"{self._name}: the content is not audio that can be decoded ({cause})")

    def _choose_stream(self) -> AvStream:
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

    def _start_seconds(self) -> float:
        """Where the container's clock begins, in seconds; an audio track may begin later than its video."""
        start = self._container.start_time
        return start / av.time_base if start is not None else 0.0

    def _read_stated_seconds(self) -> float | None:
        """The stated length in seconds, if the container states that of the audio rather than of video."""
        kind = self._container.format.name
        duration = self._stream.duration
        if kind.startswith("mov") and duration is not None and not self._mp4.fragmented:
            return float(duration * (self._stream.time_base or 0))
        is_exact = kind in DEMUXERS or kind.startswith("matroska")
        if is_exact and len(self._container.streams) == 1 and self._container.duration:
            return self._container.duration / av.time_base
        return None

    def _frames(self) -> Iterator[tuple[AudioFrame, float | None]]:
        for packet in self._packets():
            seconds = float((packet.duration or 0) * (packet.time_base or 0)) or 0.1
            frames: list[AudioFrame] = []
            with self._tolerating_damage(seconds, last=packet.is_corrupt and self._at_end):
                frames = self._decoder.decode(packet)
            yield from ((frame, frame.time) for frame in frames)

    def _packets(self) -> "Iterator[Packet[AvStream]]":
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
            except av.error.FFmpegError as error:
                # Never the disk's, whatever its type: PyAV raises what reading the file raised as it was.
                if self._at_end and self._clock.seconds > 0:
                    return  # cut off in the middle of a packet
                raise AudioUnreadable(
                    f"{self._name}: the container is damaged after {self._position}"
                ) from error
            if packet is None:
                return
            yield packet

    @property
    def _at_end(self) -> bool:
        return self._file.tell() >= self._size

    def close(self) -> None:
        """Close FFmpeg's side; the caller's file stays open."""
        self._container.close()
