"""The samples of a recording, any stretch of them: those of plain WAV files as they are, others decoded by
libsndfile, and what that does not read by a worker's reader.

Nothing is held but a block. A decoder that disagrees with the worker about a recording's length could
disagree about its times too, and give out what is closed: such recordings are refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, cast

from api.recordings.sample_format import FLOAT, PCM, CannotCut, SampleFormat
from api.recordings.source import Readable, RecordingFile
from api.recordings.worker_samples import open_with_worker
from spool.recordings.wav_header import WavHeader, read_wav_header

if TYPE_CHECKING:
    from soundfile import SoundFile

_BLOCK_VALUES = 1 << 16
_SLACK = 0.1
"""Seconds by which two decoders may differ at a recording's end."""
_INEXACT = frozenset({"MP3", "GSM610"})
"""Of which libsndfile does not find a frame exactly: they are decoded from the beginning."""
_SILENCE_RATE = 16_000
_SILENT = SampleFormat(PCM, 1, _SILENCE_RATE, 16, 2)


class Samples(Protocol):
    """A recording as frames: one sample of each channel."""

    @property
    def format(self) -> SampleFormat: ...
    @property
    def frames(self) -> int: ...
    @property
    def margin(self) -> float:
        """Seconds by which its times may be off."""

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """The frames `[start, stop)`, in blocks."""


@dataclass(frozen=True, slots=True)
class Silence:
    """As much silence as a recording is long: what there is to hear of one that is closed whole."""

    seconds: float
    format: SampleFormat = _SILENT
    margin: float = 0.0

    @property
    def frames(self) -> int:
        """To the nearest sample."""
        return round(self.seconds * _SILENCE_RATE)

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Zeros."""
        for at in range(start, stop, _BLOCK_VALUES):
            yield bytes(2 * (min(at + _BLOCK_VALUES, stop) - at))


@dataclass(frozen=True, slots=True)
class PlainWav:
    """The samples of a WAV file, as they lie there."""

    recording: Readable
    header: WavHeader
    margin: float = 0.0

    @property
    def format(self) -> SampleFormat:
        """As in the file."""
        header = self.header
        return SampleFormat(header.tag, header.channels, header.rate, header.bits, header.block_align)

    @property
    def frames(self) -> int:
        """Those in the file, whatever its header states."""
        return self.header.present // self.header.block_align

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes of the file."""
        begin, frame = self.header.data_offset, self.header.block_align
        return self.recording.part(begin + start * frame, begin + stop * frame)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Samples that libsndfile decodes, as they were if they have 16 or 24 bits or are floating point."""

    recording: Readable
    format: SampleFormat
    frames: int
    coding: "_Coding"
    seekable: bool
    margin: float

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Decoded anew on each call. From where a file cannot be decoded further it is silent."""
        file = RecordingFile(self.recording)
        block = max(1, _BLOCK_VALUES // self.format.channels)
        with _open(file) as sound:
            at = sound.seek(start) if self.seekable and start else 0
            while at < stop:
                count = min(block, (start if at < start else stop) - at)
                found = self._decode(sound, count)
                if file.error is not None:
                    raise file.error
                if at >= start:
                    yield found
                at += len(found) // self.format.frame

    def _decode(self, sound: "SoundFile", count: int) -> bytes:
        from soundfile import LibsndfileError

        try:
            found = bytes(sound.buffer_read(count, dtype=self.coding.read_as))
        except LibsndfileError:
            found = b""
        return self.coding.write(found) or bytes(count * self.format.frame)


class _Coding(NamedTuple):
    """How samples are read, and written to WAV."""

    read_as: str
    tag: int
    bits: int
    write: Callable[[bytes], bytes] = lambda samples: samples


def _narrow(samples: bytes) -> bytes:
    """24 of 32 bits."""
    narrow = bytearray(len(samples) // 4 * 3)
    for place in range(3):
        narrow[place::3] = samples[place + 1 :: 4]
    return bytes(narrow)


def _clip(samples: bytes) -> bytes:
    """Floating point as 16 bits. libsndfile's own conversion wraps what is too loud for Vorbis and Opus."""
    import numpy as np

    values = np.frombuffer(samples, np.float32) * 32_768
    return np.rint(values).clip(-32_768, 32_767).astype("<i2").tobytes()


_PLAIN = _Coding("int16", PCM, 16)
_CODINGS = {
    **dict.fromkeys(
        ("PCM_24", "PCM_32", "ALAC_20", "ALAC_24", "ALAC_32"), _Coding("int32", PCM, 24, _narrow)
    ),
    **dict.fromkeys(("FLOAT", "DOUBLE"), _Coding("float32", FLOAT, 32)),
    **dict.fromkeys(("VORBIS", "OPUS", "MPEG_LAYER_III"), _Coding("float32", PCM, 16, _clip)),
}
"""By libsndfile's name of how samples are coded; others are `_PLAIN`."""


def _open(file: RecordingFile) -> "SoundFile":
    import soundfile  # with numpy, a fifth of a second that most requests need not take

    class Forward(soundfile.SoundFile):  # type: ignore[misc]
        def seekable(self) -> bool:
            """Otherwise `soundfile` seeks after every read, and MP3 is not where it was any more."""
            return False

    try:
        return Forward(file)
    except soundfile.LibsndfileError as error:
        if file.error is not None:
            raise file.error from None
        raise CannotCut(error.error_string) from None


def open_samples(recording: Readable, name: str, seconds: float | None) -> Samples:
    """The samples of a recording of this name, and of the length that a worker found. Raises `CannotCut`, and
    what reading raises."""
    file = RecordingFile(recording)
    header = read_wav_header(cast("BinaryIO", file))
    if file.error is not None:
        raise file.error
    if header is not None and header.tag in (PCM, FLOAT) and header.subtype and not header.big_endian:
        return PlainWav(recording, header)
    if seconds is None:
        raise CannotCut("It can be cut once a worker has read it to its end.")
    try:
        sound = _open(RecordingFile(recording))
    except CannotCut:
        return open_with_worker(recording, name, seconds)
    with sound:
        rate, frames = int(sound.samplerate), int(sound.frames)
        if rate <= 0 or abs(frames / rate - seconds) > _SLACK:
            raise CannotCut(
                f"{name}: its header gives another length than the {seconds:.1f} s that a worker found, so "
                "it cannot be cut at a time."
            )
        coding = _CODINGS.get(sound.subtype, _PLAIN)
        frame = sound.channels * coding.bits // 8
        kind = SampleFormat(coding.tag, sound.channels, rate, coding.bits, frame)
        inexact = sound.format in _INEXACT or sound.subtype in _INEXACT
        return Decoded(recording, kind, frames, coding, not inexact, _SLACK if inexact else 0.0)
