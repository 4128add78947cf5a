"""WAV, FLAC, Ogg (and AIFF, AU, CAF) through libsndfile, in blocks.

The file is handed over as a descriptor: libsndfile sees content, not a name, and reports instead of
printing. Its MP3 decoder is not used here (see `worker.audio.ffmpeg_reader`).
"""

import os
from collections.abc import Iterator
from typing import BinaryIO

import soundfile

from spool.errors import AudioTruncated, AudioUnreadable, StorageError
from worker.audio.base import Block, at_time, block_frames, check_rate, source_error
from worker.audio.sniff import Content, ogg_has_end
from worker.audio.wav_header import DataWindow, WavHeader, read_wav_header

_UNKNOWN_LENGTH = 1 << 62
_SYSTEM_ERROR = 2
_MPEG_TAGS = (0x50, 0x55)


class NotForSoundfile(Exception):
    """libsndfile cannot read this file as a whole."""


class SoundfileReader:
    """One open recording; see `worker.audio.base.Reader`."""

    def __init__(self, file: BinaryIO, name: str, content: Content) -> None:
        """Raises `NotForSoundfile` in libsndfile's words, `AudioUnreadable` where nobody can read it."""
        self._file = file
        self._name = name
        self._window: DataWindow | None = None
        self.warnings: list[str] = []
        header = read_wav_header(file) if content == "wav" else None
        if header is not None:
            check_rate(name, header.rate)
        # Before libsndfile opens: it reads through a duplicate descriptor, which shares our position.
        if content == "ogg" and not ogg_has_end(file):
            self.warnings.append("the Ogg stream has no end mark: the file may have been cut off")
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
        if header is not None and header.lies:
            if header.subtype is None:
                raise NotForSoundfile("the header's length is wrong and the coding is not plain samples")
            return self._open_window(header, header.subtype)
        descriptor = os.dup(self._file.fileno())
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            return soundfile.SoundFile(descriptor, closefd=True)
        except soundfile.LibsndfileError as error:
            # libsndfile has closed the descriptor by now.
            raise NotForSoundfile(error.error_string) from error

    def _open_window(self, header: WavHeader, subtype: str) -> soundfile.SoundFile:
        second = header.rate * header.block_align
        self.warnings.append(
            f"the WAV header promises {header.promised} bytes ({header.promised / second:.2f} s) of audio, "
            f"the file holds {header.present} ({header.present / second:.2f} s): read to the end of the file"
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
        """Every sample once; a file that stops before its header's length raises."""
        count = block_frames(self.rate, self.channels)
        done = 0
        expected = self.expected_frames or 0
        while done < expected:
            try:
                samples = self._sound.read(count, dtype="float32", always_2d=True)
            except soundfile.LibsndfileError as error:
                raise self._broken(done, error) from error
            if self._window is not None and self._window.error is not None:
                raise source_error(self._name, self._window.error)
            if not len(samples):
                raise self._broken(done, None)
            done += len(samples)
            yield Block(samples, self.rate)

    def _broken(self, done: int, error: soundfile.LibsndfileError | None) -> Exception:
        if error is not None and error.code == _SYSTEM_ERROR:
            return StorageError(f"{self._name}: reading failed at {at_time(done, self.rate)}")
        total = at_time(self.expected_frames or 0, self.rate)
        size = os.fstat(self._file.fileno()).st_size
        at_end = os.lseek(self._file.fileno(), 0, os.SEEK_CUR) >= size
        if error is None or at_end:
            return AudioTruncated(
                f"{self._name}: the file ends after about {at_time(done, self.rate)}, "
                f"its header promises {total}: it was cut off"
            )
        return AudioUnreadable(
            f"{self._name}: the file is damaged after about {at_time(done, self.rate)} of {total} "
            f"and cannot be decoded further"
        )

    def close(self) -> None:
        """Close libsndfile's side; the caller's file stays open."""
        self._sound.close()
