"""A recording as 16 kHz float32 blocks: opens the file, picks its reader, checks, mixes and resamples.

Enforces the limits (length, finite samples); containers are the readers' business.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Self

import numpy as np

from spool.errors import (
    AudioEmpty,
    AudioError,
    AudioNotFinite,
    AudioTooLong,
    AudioTruncated,
    AudioUnreadable,
    SourceChanged,
    SourceMissing,
)
from worker.audio.base import (
    MAX_SEPARATE_CHANNELS,
    Block,
    Reader,
    Samples,
    check_rate,
    format_time,
    source_error,
)
from worker.audio.ffmpeg_reader import AvReader
from worker.audio.mp4 import Mp4Reader, NotPlainMp4
from worker.audio.resample import SAMPLE_RATE, Resampler
from worker.audio.sniff import content_of, ogg_is_chained
from worker.audio.soundfile_reader import NotForSoundfile, SoundfileReader
from worker.audio.stated_length import Length, compare_length, describe_shortfall, read_stated_length

Channels = Literal["mix", "separate"]

MAX_MAGNITUDE = 1e9
"""A larger sample is not audio, and its power spectrum would overflow float32."""


def open_audio(
    path: Path | str,
    *,
    channels: Channels = "mix",
    name: str | None = None,
    max_seconds: float | None = None,
) -> "AudioStream":
    """The recording at `path`, to be used as a context manager; the file's content decides how it is read.

    `channels`: "mix" gives the mean of all channels as one, "separate" keeps them apart. `name` is what
    messages call the file (default: its file name). `max_seconds` limits the length.

    Raises `SourceMissing` and `SourceForbidden` if the file cannot be opened, and `AudioEmpty`,
    `AudioUnreadable`, `AudioTruncated` (no audio is left) and `AudioTooLong` if its header already shows it.
    Reading can raise these too, as well as `AudioNotFinite`, `SourceChanged` (the file changed while it was
    read) and `StorageError` (a failing disk; the only one worth a retry). A truncated file is read to its
    end; `AudioStream.length` says what is missing.
    """
    display_name = name or Path(path).name
    try:
        # Opening a pipe or a device could block for ever.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SourceMissing(f"{display_name}: is not a regular file")
        # Buffering would read ahead of the position that the readers share.
        file = open(path, "rb", buffering=0)  # noqa: SIM115 - the stream owns and closes it
    except OSError as error:
        raise source_error(display_name, error) from error
    try:
        return AudioStream(file, display_name, channels, max_seconds)
    except OSError as error:
        file.close()
        raise source_error(display_name, error) from error
    except BaseException:
        file.close()
        raise


class AudioStream:
    """One open recording. `blocks()` can be read once; `samples_read` counts its samples, at 16 kHz."""

    sample_rate = SAMPLE_RATE

    def __init__(self, file: BinaryIO, name: str, channels: Channels, max_seconds: float | None) -> None:
        """Takes ownership of `file`; use `open_audio` instead."""
        self._file = file
        self._name = name
        self._max_seconds = max_seconds
        self._size = os.fstat(file.fileno()).st_size
        if self._size == 0:
            raise AudioEmpty(f"{name}: the file is empty (0 bytes)")
        stated = read_stated_length(file)
        self._reader = _reader_for(file, name)
        seconds = self._reader.stated_seconds if stated.seconds is None else stated.seconds
        self._stated = replace(stated, seconds=seconds)
        self._mix = channels == "mix"
        self.source_rate = self._reader.rate
        self.source_channels = self._reader.channels
        self.source_format = self._reader.format
        self.channels = 1 if self._mix else self.source_channels
        self.samples_read = 0
        self._frames = 0
        self._seconds = 0.0
        try:
            check_rate(name, self.source_rate)
            self._check_channels()
            self._check_length(self.expected_seconds or 0.0)
        except AudioError:
            self._reader.close()
            raise

    @property
    def warnings(self) -> list[str]:
        """Problems that did not prevent reading; complete after the last block."""
        shortfall = describe_shortfall(self.length) if self._seconds else None
        return self._reader.warnings + ([shortfall] if shortfall else [])

    @property
    def expected_seconds(self) -> float | None:
        """The length according to the header, for progress; None if it states none."""
        frames = self._reader.expected_frames
        return None if frames is None else frames / self._reader.rate

    @property
    def length(self) -> Length:
        """The length read compared with the length stated; complete after the last block."""
        return compare_length(self._stated, self._seconds)

    @property
    def known_length(self) -> Length:
        """Like `length`, from the header and the file's size alone, before anything is decoded."""
        length = compare_length(self._stated, self.expected_seconds or 0.0)
        if length.complete is False and self.expected_seconds is not None:
            return length
        return Length(False if self._stated.cut else None, self._stated.seconds, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and the decoder; safe to call twice."""
        self._reader.close()
        self._file.close()

    def blocks(self) -> Iterator[Samples]:
        """`[n, channels]` float32 at 16 kHz, every sample once and in order; at most a second per block."""
        resampler: Resampler | None = None
        try:
            for block in self._reader.blocks():
                samples = self._prepare(block)
                if resampler is not None and resampler.rate != block.rate:
                    yield from self._count(resampler.finish())
                    resampler = None
                resampler = resampler or Resampler(block.rate, self.channels)
                yield from self._count(resampler.push(samples))
        except OSError as error:
            raise source_error(self._name, error) from error
        if resampler is None and self.length.complete is False:
            raise AudioTruncated(f"{self._name}: the file was cut off before its first sample")
        if resampler is None:
            raise AudioEmpty(f"{self._name}: the file holds no samples")
        yield from self._count(resampler.finish())
        size = os.fstat(self._file.fileno()).st_size
        if size != self._size:
            raise SourceChanged(
                f"{self._name}: grew or shrank from {self._size} to {size} bytes while it was read"
            )

    def _count(self, resampled: Iterable[Samples]) -> Iterator[Samples]:
        for samples in resampled:
            self.samples_read += len(samples)
            yield samples

    def _prepare(self, block: Block) -> Samples:
        check_rate(self._name, block.rate)
        self._check_finite(block)
        self._frames += len(block.samples)
        self._seconds += len(block.samples) / block.rate
        self._check_length(self._seconds)
        width = block.samples.shape[1]
        if self._mix:
            # Averaged in double precision, so that the result does not depend on the channels' order.
            return block.samples if width == 1 else _mean(block.samples)
        if width != self.channels:
            raise AudioUnreadable(
                f"{self._name}: the number of channels changes from {self.channels} to {width} "
                f"at {self._seconds:.3f} s, so they cannot be kept separate"
            )
        return block.samples

    def _check_finite(self, block: Block) -> None:
        # A comparison with NaN is false, so one test catches NaN, infinity and nonsense.
        valid = np.abs(block.samples) <= MAX_MAGNITUDE
        if valid.all():
            return
        row, channel = (int(index) for index in np.argwhere(~valid)[0])
        value = float(block.samples[row, channel])
        index = self._frames + row
        what = "is not a finite number" if not np.isfinite(value) else "is far outside the range of audio"
        seconds = format_time(round(self._seconds * block.rate) + row, block.rate)
        raise AudioNotFinite(
            f"{self._name}: sample {index} of channel {channel} ({seconds}) {what} ({value})"
        )

    def _check_channels(self) -> None:
        if self.channels > MAX_SEPARATE_CHANNELS:
            raise AudioUnreadable(
                f"{self._name}: the recording has {self.channels} channels, and at most "
                f"{MAX_SEPARATE_CHANNELS} can be kept separate; mix them instead"
            )

    def _check_length(self, seconds: float) -> None:
        """Raise if `channels` times the recording's length is above the limit."""
        limit = self._max_seconds
        if limit is None or seconds * self.channels <= limit:
            return
        if self.channels == 1 or seconds > limit:
            raise AudioTooLong(f"{self._name}: the recording is longer than the limit of {_time(limit)}")
        raise AudioTooLong(
            f"{self._name}: {self.channels} separate channels of {seconds:.0f} s are more audio than the "
            f"limit of {_time(limit)}; mix them instead"
        )


def _time(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds:g} s"


def _mean(samples: Samples) -> Samples:
    mean: Samples = samples.mean(axis=1, dtype=np.float64, keepdims=True).astype(np.float32)
    return mean


def _reader_for(file: BinaryIO, name: str) -> Reader:
    content = content_of(file)
    by_soundfile = content in ("wav", "flac", "sndfile") or (content == "ogg" and not ogg_is_chained(file))
    if by_soundfile:
        try:
            return SoundfileReader(file, name, content)
        except NotForSoundfile:
            # FFmpeg may know the coding or container; if not, its error is the one reported.
            file.seek(0)
    if content == "mp4":
        try:
            return Mp4Reader(file, name)
        except NotPlainMp4:
            file.seek(0)
    return AvReader(file, name, content)
