"""WAV, FLAC, Ogg (and AIFF, AU, CAF) through libsndfile, in blocks.

libsndfile gets a file descriptor, so it goes by content, not by name. Its MP3 decoder is not used (see
`worker.audio.ffmpeg_reader`).
"""

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

import soundfile

from spool.errors import AudioUnreadable, StorageError
from spool.recordings.wav_header import DataWindow, WavHeader, is_placeholder, read_wav_header
from worker.audio.base import Block, block_frames, check_rate, format_time, source_error
from worker.audio.sniff import Content

_UNKNOWN_LENGTH = 1 << 62
_SYSTEM_ERROR = 2
_LAST_FRAMES = 1024
_MPEG_TAGS = (0x50, 0x55)


class NotForSoundfile(Exception):
    """libsndfile cannot read this file as a whole."""


class SoundfileReader:
    """One open recording; see `worker.audio.base.Reader`."""

    def __init__(self, file: BinaryIO, name: str, content: Content) -> None:
        """Raises `NotForSoundfile` with libsndfile's message, `AudioUnreadable` if no reader can read it."""
        self._file = file
        self._name = name
        self._window: DataWindow | None = None
        self.warnings: list[str] = []
        header = read_wav_header(file) if content == "wav" else None
        if header is not None:
            check_rate(name, header.rate)
        self.stated_seconds: float | None = None
        self._sound = self._open(header)
        self.rate = int(self._sound.samplerate)
        self.channels = int(self._sound.channels)
        frames = int(self._sound.frames)
        if self.rate <= 0 or frames >= _UNKNOWN_LENGTH or self._sound.format == "MP3":
            self._sound.close()
            raise NotForSoundfile("the length is not known from the header")
        self.format = f"{'WAV' if header else self._sound.format}/{self._sound.subtype}"
        self.expected_frames: int | None = frames

    def _open(self, header: WavHeader | None) -> soundfile.SoundFile:
        if header is not None and header.tag in _MPEG_TAGS:
            raise NotForSoundfile("MPEG audio inside WAV")
        if header is not None and header.is_wrong:
            if header.subtype is None:
                raise NotForSoundfile("the header's length is wrong and the coding is not plain samples")
            return self._open_window(header, header.subtype)
        descriptor = os.dup(self._file.fileno())
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            return soundfile.SoundFile(descriptor, closefd=True)
        except soundfile.LibsndfileError as error:
            # libsndfile has closed the descriptor.
            raise NotForSoundfile(error.error_string) from error

    def _open_window(self, header: WavHeader, subtype: str) -> soundfile.SoundFile:
        # The caller reports a shortfall: it compares what was read with what is stated.
        if header.declared < header.present or is_placeholder(header.declared):
            second = header.rate * header.block_align
            self.warnings.append(
                f"the WAV header declares {header.declared} bytes ({header.declared / second:.2f} s) "
                f"of audio, but the file contains {header.present} ({header.present / second:.2f} s), "
                "all of which were read"
            )
        self._window = DataWindow(self._file, header.data_offset, header.present)
        try:
            return soundfile.SoundFile(
                self._window,
                samplerate=header.rate,
                channels=header.channels,
                format="RAW",
                subtype=subtype,
                endian="BIG" if header.big_endian else "LITTLE",
            )
        except soundfile.LibsndfileError as error:
            raise NotForSoundfile(error.error_string) from error

    def blocks(self) -> Iterator[Block]:
        """Every sample once, up to the end of a file that stops before its header's length."""
        count = block_frames(self.rate, self.channels)
        done = 0
        expected = self.expected_frames or 0
        while done < expected:
            try:
                samples = self._sound.read(count, dtype="float32", always_2d=True)
            except soundfile.LibsndfileError as error:
                self._check_damage(done, error)
                yield from self._last_frames(done)
                return
            if self._window is not None and self._window.error is not None:
                raise source_error(self._name, self._window.error)
            if not len(samples):
                return
            done += len(samples)
            yield Block(samples, self.rate)

    def _last_frames(self, done: int) -> Iterator[Block]:
        """What can be decoded after frame `done` of a file that was cut off in the middle of a block. An
        error discards the whole read, so each read is small."""
        with contextlib.suppress(soundfile.LibsndfileError), self._reopen(done) as reopened:
            while len(samples := reopened.read(_LAST_FRAMES, dtype="float32", always_2d=True)):
                yield Block(samples, self.rate)

    def _reopen(self, frame: int) -> soundfile.SoundFile:
        descriptor = os.dup(self._file.fileno())
        os.lseek(descriptor, 0, os.SEEK_SET)
        sound = soundfile.SoundFile(descriptor, closefd=True)
        sound.seek(frame)
        return sound

    def _check_damage(self, done: int, error: soundfile.LibsndfileError) -> None:
        """Raise if the file is damaged before its end, or cannot be read."""
        if error.code == _SYSTEM_ERROR:
            raise StorageError(f"{self._name}: reading failed at {format_time(done, self.rate)}")
        size = os.fstat(self._file.fileno()).st_size
        if os.lseek(self._file.fileno(), 0, os.SEEK_CUR) < size:
            raise AudioUnreadable(
                f"{self._name}: the file is damaged after about {format_time(done, self.rate)} of "
                f"{format_time(self.expected_frames or 0, self.rate)} and cannot be decoded further"
            )

    def close(self) -> None:
        """Close libsndfile's side; the caller's file stays open."""
        self._sound.close()
