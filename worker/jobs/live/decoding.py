"""Hears a live session's log through the engine and saves each final as a chunk of its job.

The session is heard in segments: each begins with a fresh state of the engine, at the end of a record, and
the chunk that ends it says so (its tail is empty). A later attempt begins at the segment in which the last
one stopped, hears it again and saves what is new; the time that the repetition takes is booked as wasted.
Segments and chunks follow from the log alone (law 7), and chunks leave no sample out (law 6). So where the
engine is slower than the session speaks, records that wait may be heard at once: a segment ends at none but
the records that are `_Segment.due`, and what a final says does not depend on how its audio came.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spool.broker.live_signals import LiveSignals, Message, words_channel
from spool.domain.live.options import Listening
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.domain.transcript import Word
from spool.errors import JobCancelled, WeightsChanged
from worker.audio import SAMPLE_RATE
from worker.audio.resample import Resampler
from worker.engine.live_session import EngineSession, LiveRequest, LiveSessions
from worker.jobs.attempt import Attempt, GiveBack
from worker.jobs.live.log_reader import LogReader
from worker.jobs.transcript import move_words
from worker.live.endpoint import EndpointRules, Reason
from worker.live.events import Event, Final, Mark, Partial, SpeechStarted

RULES = EndpointRules()
"""As they are unless a session asks for others."""
SEGMENT_SECONDS = 60.0
"""Behind the first utterance that ends after this, a segment ends."""
QUIET_SECONDS = 300.0
"""After this, a segment ends wherever nobody speaks."""
MOST_SECONDS = 600.0
"""After this, a segment ends with the next final."""
LOOK_SECONDS = 1.0
"""How much is heard between two looks whether a segment ends."""
CATCH_UP_SECONDS = 5.0
"""How much of what waits is heard at once. The engine waits a moment for more of a session with so much."""
_PAUSES = frozenset({"silence", "no_speech", "eou"})


@dataclass(frozen=True, slots=True)
class LiveDesk:
    """What live sessions of one worker share."""

    sessions: LiveSessions
    signals: LiveSignals


@dataclass(slots=True)
class _Segment:
    """What is heard with one state of the engine. `base`: its first sample at 16 kHz; `booked_ns` and
    `wasted_ns`: what of its session's time is booked already."""

    session: EngineSession
    resampler: Resampler
    base: int
    due: int
    """Behind the record that reaches so many frames of the log, it may end."""
    frames: int = 0
    """How much of the log was heard, at the log's rate."""
    booked_ns: int = 0
    wasted_ns: int = 0
    is_open: bool = False
    """Whether there are words that are not final."""
    reason: Reason | None = None
    """Of the last final."""
    fresh_final: bool = False
    """Whether there was a final since it was last asked whether the segment ends."""


@dataclass(slots=True)
class LiveDecoding:
    """The decoding of one claimed session. `request` is what its engine sessions are asked."""

    attempt: Attempt
    desk: LiveDesk
    listening: Listening
    log: LogReader
    request: LiveRequest
    _index: int = 0
    _at: int = 0
    _segment: _Segment | None = field(default=None)

    def decode(self) -> None:
        """Hear the log to its end; the attempt's `decoded` is then complete. Raises as `Attempt.decode`
        does."""
        self._take_saved()
        self.log.skip_to(self._at)
        try:
            while True:
                record = self.log.next(self._check)
                if record.kind == "end":
                    break
                if record.kind == "audio":
                    audio = self._with_waiting(record.data)
                    behind = len(audio) >= self._frames_in(CATCH_UP_SECONDS) * self.listening.frame_bytes
                    self._hear(audio, behind=behind)
                elif record.kind == "finalize":
                    self._end_segment(finalize=True)
            self._end_segment()
        except JobCancelled:
            self.attempt.lease.check()  # says why it was to stop
            raise
        finally:
            self._give_up()

    @property
    def samples(self) -> int:
        """How long the recording is, in samples at 16 kHz."""
        return self.listening.position_of(self.log.frames)

    def _check(self) -> None:
        self.attempt.lease.check()
        if (why := self.attempt.context.rests_because()) is not None:
            raise GiveBack(why)

    def _take_saved(self) -> None:
        """Take over all segments that were heard to their end."""
        saved = self.attempt.saved
        ended = max((number for number, chunk in enumerate(saved) if chunk.tail == ()), default=-1)
        for chunk in saved[: ended + 1]:
            self.attempt.is_known(chunk.span)
            self._index, self._at = chunk.span.index + 1, chunk.span.core_end

    # --- one segment ----------------------------------------------------------------------------------------

    def _with_waiting(self, audio: bytes) -> bytes:
        """The record's audio and that of the records behind it, as far as they may be heard at once."""
        segment, together = self._segment, bytearray(audio)
        room = self._frames_in(SEGMENT_SECONDS) if segment is None else segment.due - segment.frames
        most = min(room, self._frames_in(CATCH_UP_SECONDS)) * self.listening.frame_bytes
        while len(together) < most and (more := self.log.read_waiting_audio(self._check)):
            together += more
        return bytes(together)

    def _frames_in(self, seconds: float) -> int:
        return round(seconds * self.listening.sample_rate)

    def _hear(self, audio: bytes, *, behind: bool) -> None:
        segment = self._segment or self._begin_segment(len(audio))
        mono = mono_of(audio, self.listening.channels)
        # At once: between two feeds the engine may run a batch of jobs.
        blocks = list(segment.resampler.push(mono))
        if blocks:
            self._take(segment, self._push_samples(segment, np.concatenate(blocks), more=behind))
        segment.frames += len(mono)
        if segment.frames >= segment.due and self._ends(segment):
            self._end_segment()

    def _begin_segment(self, read_bytes: int) -> _Segment:
        """A segment at the record that was read last."""
        first = self._segment is None and self._index == 0 and self._at == 0
        opened = self.desk.sessions.open if first else self.desk.sessions.go_on
        session = opened(self.request, self.attempt.lease.stop)
        base = self.listening.position_of(self.log.frames - read_bytes // self.listening.frame_bytes)
        resampler, due = Resampler(self.listening.sample_rate, 1), self._frames_in(SEGMENT_SECONDS)
        self._segment = _Segment(session, resampler, base, due)
        return self._segment

    def _push_samples(
        self, segment: _Segment, block: NDArray[np.float32], *, last: bool = False, more: bool = False
    ) -> list[Event]:
        events = segment.session.push(block[:, 0], last=last, more=more)
        info = self.attempt.info
        if info is not None and segment.session.weights not in (None, info.makers):
            raise WeightsChanged(f"{self.attempt.name}: {WeightsChanged().message}")
        return events

    def _ends(self, segment: _Segment) -> bool:
        """Whether the segment ends here; if not, when to ask again."""
        fresh_final, segment.fresh_final = segment.fresh_final, False
        while segment.due <= segment.frames:
            segment.due += self._frames_in(LOOK_SECONDS)
        if segment.frames >= self._frames_in(MOST_SECONDS) and fresh_final:
            return True
        if segment.is_open:
            return False
        return segment.frames >= self._frames_in(QUIET_SECONDS) or segment.reason in _PAUSES

    def _end_segment(self, *, finalize: bool = False) -> None:
        """Make final all that was heard; the next record begins a segment."""
        segment = self._segment
        if segment is None:
            return
        tail = [*segment.resampler.finish(), np.zeros((0, 1), np.float32)]
        events = self._push_samples(segment, np.concatenate(tail), last=True)
        finals = [event for event in events if isinstance(event, Final)]
        for final in finals[:-1]:
            self._save_final(segment, final)
        if self.samples > self._at:
            words = last_words(finals, segment.base, self.samples)
            self._save(segment, words, self.samples, "finalize" if finalize else "end", ends=True)
        self._book_waste(segment)
        self._segment = None

    def _take(self, segment: _Segment, events: list[Event]) -> None:
        signals, channel = self.desk.signals, words_channel(self.attempt.claim.job.id)
        base = segment.base / SAMPLE_RATE
        for event in events:
            if isinstance(event, Final):
                segment.is_open, segment.reason, segment.fresh_final = False, event.reason, True
                self._save_final(segment, event)
            elif isinstance(event, Partial):
                segment.is_open = bool(event.text)
                if not self._is_repeated:
                    start, end = round(event.start + base, 3), round(event.end + base, 3)
                    message: Message = {
                        "type": "partial",
                        "number": self._index,
                        "start": start,
                        "end": end,
                        "text": event.text,
                        "stable": event.stable_text,
                        "words": [
                            word.model_dump(mode="json", exclude={"channel"})
                            for word in move_words(event.words, base, self.samples / SAMPLE_RATE)
                        ],
                    }
                    signals.tell(channel, message)
            elif isinstance(event, Mark | SpeechStarted) and not self._is_repeated:
                kind = event.kind if isinstance(event, Mark) else "speech_started"
                signals.tell(channel, {"type": kind, "time": round(event.time + base, 3)})

    @property
    def _is_repeated(self) -> bool:
        """Whether an earlier attempt saved the final that comes next."""
        saved = self.attempt.saved
        return bool(saved) and saved[-1].span.index >= self._index

    # --- saving ---------------------------------------------------------------------------------------------

    def _save_final(self, segment: _Segment, final: Final) -> None:
        """Save a final behind which more is heard."""
        words, end = place_final(final, segment.base, self._at, self.samples)
        self._save(segment, words, end, final.reason)

    def _save(
        self, segment: _Segment, words: tuple[Word, ...], end: int, reason: str, *, ends: bool = False
    ) -> None:
        attempt = self.attempt
        spent = segment.session.engine_ns - segment.booked_ns
        segment.booked_ns = segment.session.engine_ns
        span = ChunkSpan(0, self._index, self._at, end, self._at, end)
        if attempt.is_known(span):
            self._waste(spent)
        else:
            heard = Recognition(words=words, engine_ns=spent)
            chunk = DecodedChunk(span, heard, tail=() if ends else None)
            attempt.commit_chunks([(chunk, attempt.charge(spent, span.core))])
        self._index, self._at = span.index + 1, span.core_end
        message: Message = {"type": "final", "number": span.index, "reason": reason}
        self.desk.signals.tell(words_channel(attempt.claim.job.id), message)

    def _book_waste(self, segment: _Segment) -> None:
        """Book what rebuilding the session's state took."""
        lost, segment.wasted_ns = segment.session.wasted_ns - segment.wasted_ns, segment.session.wasted_ns
        self._waste(lost)

    def _waste(self, engine_ns: int) -> None:
        attempt = self.attempt
        job = attempt.claim.job
        attempt.context.wasted.add(job.id, attempt.claim.attempt, attempt.charge(engine_ns, 0), job.batch_id)

    def _give_up(self) -> None:
        """Leave the engine, and book the time of what was not saved."""
        segment, self._segment = self._segment, None
        if segment is None:
            return
        segment.session.close()
        self._waste(segment.session.engine_ns - segment.booked_ns)
        self._book_waste(segment)


def live_request(attempt: Attempt, listening: Listening) -> LiveRequest:
    """What the engine is asked for a session."""
    return LiveRequest(
        attempt.model,
        attempt.request.search,
        endpoints=endpoint_rules(listening),
        detects=attempt.claim.job.options.speech_detector,
    )


def endpoint_rules(listening: Listening) -> EndpointRules | None:
    """What ends an utterance of the session; None: nothing does."""
    if listening.silence_ms is None:
        return None
    seconds = listening.silence_ms / 1000
    # Who asks for longer pauses than usual means those that the detector hears, too.
    return EndpointRules(silence=seconds, unvoiced=seconds * RULES.unvoiced / RULES.silence)


def mono_of(audio: bytes, channels: int) -> NDArray[np.float32]:
    """The audio of a record, mixed: [N, 1]."""
    pcm = np.frombuffer(audio, "<i2").reshape(-1, channels)
    mixed: NDArray[np.float32] = (pcm.astype(np.float32) / 32768).mean(axis=1, keepdims=True)
    return mixed


def place_final(final: Final, base: int, at: int, samples: int) -> tuple[tuple[Word, ...], int]:
    """The words of a final behind which more of its segment is heard, and where its chunk ends. base: where
    the segment begins; at: where the chunk does; samples: what of the session has come, of which one is left
    for the segment's last chunk."""
    heard = base + round(final.heard * SAMPLE_RATE)
    end = min(base + round(final.end * SAMPLE_RATE), heard)
    words = move_words(final.words, base / SAMPLE_RATE, heard / SAMPLE_RATE)
    return words, max(at + 1, min(end, samples - 1))


def last_words(finals: Sequence[Final], base: int, samples: int) -> tuple[Word, ...]:
    """The words of a segment's last chunk, which ends at `samples`, from the finals that its end led to."""
    return move_words(finals[-1].words if finals else (), base / SAMPLE_RATE, samples / SAMPLE_RATE)
