"""Hears the recording of a live session again, as its job heard it, to compare the chunks with a receipt.

A session is heard in segments, each with a fresh state, which end where a record of its log did. A receipt
does not say where; but the hash of a chunk depends on whether its segment ends with it. So each chunk is
looked for both ways. Imports MLX, so import it only in the process that decodes.
"""

import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from spool.domain.live.options import Listening
from spool.domain.receipts import ChunkReceipt, receipt_of
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.domain.transcript import Word
from spool.errors import InvalidRequest
from worker.audio import SAMPLE_RATE
from worker.audio.resample import Resampler
from worker.jobs.live.decoding import last_words, mono_of, place_final
from worker.live.events import Final
from worker.live.group import LiveGroup
from worker.live.session import LiveOptions
from worker.local.live import run_steps
from worker.models.base import SpeechModel

_STEP_SECONDS = 1.0
_PATIENCE_SECONDS = 30.0
"""The final of a chunk comes at most so long behind its end: an utterance with a pause in it ends earlier."""


class SessionRecording:
    """The WAV file that a session's job stored."""

    def __init__(self, path: Path, listening: Listening) -> None:
        """Raises InvalidRequest for a file that is not a recording of such a session."""
        self.listening = listening
        try:
            self._file = wave.open(str(path), "rb")  # noqa: SIM115 - __exit__ closes it
        except (OSError, wave.Error, EOFError) as error:
            raise InvalidRequest(f"{path}: this is not the recording of a live session: {error}.") from error
        found = self._file.getframerate(), self._file.getnchannels(), self._file.getsampwidth()
        if found != (listening.sample_rate, listening.channels, 2):
            self._file.close()
            raise InvalidRequest(f"{path}: rate and channels are not those of the session.")
        self.frames = self._file.getnframes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, first: int, end: int) -> NDArray[np.float32]:
        """These frames, mixed, at the recording's rate: [N, 1]."""
        self._file.setpos(first)
        return mono_of(self._file.readframes(end - first), self.listening.channels)

    def frames_at(self, position: int) -> Iterator[int]:
        """How many frames reach to this sample at 16 kHz: one number, or up to three at a higher rate."""
        near = position * self.listening.sample_rate // SAMPLE_RATE
        for frames in range(max(0, near - 1), min(self.frames, near + 4) + 1):
            if self.listening.position_of(frames) == position:
                yield frames


class _Listener:
    """Hears a segment that begins behind `at` frames. `finals`: what it has led to."""

    def __init__(
        self, recording: SessionRecording, model: SpeechModel, options: LiveOptions, at: int
    ) -> None:
        self.at, self.finals = at, list[Final]()
        self._recording = recording
        self._group = LiveGroup(model, options)
        self._session = self._group.open()
        self._resampler = Resampler(recording.listening.sample_rate, 1)

    def hear(self, end: int) -> None:
        """Hear on to this frame."""
        step = round(_STEP_SECONDS * self._recording.listening.sample_rate)
        while self.at < end:
            upto = min(end, self.at + step)
            self._push(list(self._resampler.push(self._recording.read(self.at, upto))))
            self.at = upto

    def finish(self) -> None:
        """End the segment here."""
        self._push(list(self._resampler.finish()), last=True)

    def _push(self, blocks: list[NDArray[np.float32]], *, last: bool = False) -> None:
        self._session.push(np.concatenate([*blocks, np.zeros((0, 1), np.float32)])[:, 0])
        if last:
            self._session.finish()
        self.finals += [event for event in run_steps(self._group) if isinstance(event, Final)]


class _Match(NamedTuple):
    """A chunk that is as the receipt says. `ends`: the frames behind which its segment ends, if it does."""

    chunk: DecodedChunk
    ends: tuple[int, ...] = ()


class _Segment:
    """The segment that begins with chunk `first` behind `start` frames; `chunks` and `ends` once heard."""

    def __init__(self, session: "_Session", first: int, start: int) -> None:
        self.chunks: list[DecodedChunk] = []
        self.ends: tuple[int, ...] = ()
        self.differences = 0
        self._session, self._first, self._start = session, first, start
        self._listener = session.listen_from(start)
        self._base = session.recording.listening.position_of(start)

    def hear(self) -> None:
        """Hear the segment to its end. Of chunks that differ one may stand within it, if the one behind it is
        as the receipt says; otherwise the segment is taken to end."""
        expected = self._session.expected
        while not self.ends:
            number = self._first + len(self.chunks)
            found = self._match(number)
            if found is None:
                self.differences += 1
                found = self._guess(number)
                self.chunks.append(found.chunk)
                if not found.ends and (number + 1 == len(expected) or self._match(number + 1) is None):
                    self.chunks.pop()
                    found = self._close(number)
                    self.chunks.append(found.chunk)
            else:
                self.chunks.append(found.chunk)
            self.ends = found.ends

    def _match(self, number: int) -> _Match | None:
        wanted = self._session.expected[number]
        going_on = self._go_on(number)
        if going_on is not None and receipt_of(going_on) == wanted:
            return _Match(going_on)
        ends, last = [], None
        for frames in self._session.recording.frames_at(wanted.core_end):
            closed = self._closed(number, frames)
            if closed is not None and receipt_of(closed) == wanted:
                ends.append(frames)
                last = closed
        return None if last is None else _Match(last, tuple(ends))

    def _guess(self, number: int) -> _Match:
        """What differs as one of the chunks within the segment, or as its last one."""
        going_on = self._go_on(number)
        return self._close(number) if going_on is None else _Match(going_on)

    def _close(self, number: int) -> _Match:
        recording, wanted = self._session.recording, self._session.expected[number]
        ends = tuple(recording.frames_at(wanted.core_end)) or (recording.frames,)
        closed = self._closed(number, ends[0])
        position = recording.listening.position_of(ends[0])
        return _Match(closed or self._chunk(number, (), position, ends=True), ends)

    def _go_on(self, number: int) -> DecodedChunk | None:
        """The chunk as one behind which the segment goes on; None if there is none."""
        recording, place = self._session.recording, number - self._first
        if number + 1 == len(self._session.expected):
            return None
        position = self._session.expected[number].core_end
        limit = position + round((_PATIENCE_SECONDS + self._session.lag) * SAMPLE_RATE)
        most = min(recording.frames, limit * recording.listening.sample_rate // SAMPLE_RATE)
        while len(self._listener.finals) <= place and self._listener.at < most:
            step = round(_STEP_SECONDS * recording.listening.sample_rate)
            self._listener.hear(min(most, self._listener.at + step))
        if len(self._listener.finals) <= place:
            return None
        final = self._listener.finals[place]
        come = recording.listening.position_of(self._listener.at)
        words, end = place_final(final, self._base, self._reached, come)
        return self._chunk(number, words, end, ends=False)

    def _closed(self, number: int, frames: int) -> DecodedChunk | None:
        """The chunk as the segment's last one, behind so many frames; None if another is the last one."""
        if frames <= self._start:
            return None
        listener = self._session.listen_from(self._start)
        listener.hear(frames)
        before = len(listener.finals)
        listener.finish()
        last = listener.finals[before:]
        if before + len(last[:-1]) != number - self._first:
            return None
        end = self._session.recording.listening.position_of(frames)
        return self._chunk(number, last_words(last, self._base, end), end, ends=True)

    @property
    def _reached(self) -> int:
        return self.chunks[-1].span.core_end if self.chunks else self._base

    def _chunk(self, number: int, words: tuple[Word, ...], end: int, *, ends: bool) -> DecodedChunk:
        at = self._reached
        span = ChunkSpan(0, number, at, end, at, end)
        return DecodedChunk(span, Recognition(words=words), tail=() if ends else None)


class _Session(NamedTuple):
    recording: SessionRecording
    model: SpeechModel
    options: LiveOptions
    expected: Sequence[ChunkReceipt]
    lag: float
    """Seconds of audio to a step of the model."""

    def listen_from(self, start: int) -> _Listener:
        """A listener that begins behind this frame."""
        return _Listener(self.recording, self.model, self.options, start)


def hear_session(
    recording: SessionRecording, model: SpeechModel, options: LiveOptions, expected: Sequence[ChunkReceipt]
) -> list[DecodedChunk]:
    """The session's chunks, as near to those of the receipt as they can be heard."""
    lag = LiveGroup(model, options).chunk_seconds
    session = _Session(recording, model, options, expected, lag)
    heard: list[DecodedChunk] = []
    starts: tuple[int, ...] = (0,)
    while len(heard) < len(expected):
        best: _Segment | None = None
        for start in starts:
            segment = _Segment(session, len(heard), start)
            segment.hear()
            if best is None or segment.differences < best.differences:
                best = segment
            if not best.differences:
                break
        assert best is not None
        heard += best.chunks
        starts = best.ends
    reached, samples = heard[-1].span.core_end, recording.listening.position_of(recording.frames)
    if reached < samples:
        heard.append(DecodedChunk(ChunkSpan(0, len(heard), reached, samples, reached, samples)))
    return heard
