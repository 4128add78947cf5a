"""One live session: partial and final results from its frames.

Owns the current utterance (where it began, how much of it is final) and the endpoints. `worker.live.group`
runs the steps of model and search, for many sessions at once.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import Word
from spool.errors import EngineError, InvalidRequest
from worker.audio import SAMPLE_RATE
from worker.decode.backtrace import Path
from worker.decode.live.base import LiveState, before, behind
from worker.decode.words import words_of
from worker.live.endpoint import EndpointRules, Reason
from worker.live.events import End, Event, Final, Mark, Partial, SpeechStarted
from worker.live.voice import Voice
from worker.models.base import Tokenizer
from worker.models.requests import SearchOptions
from worker.models.streaming import FrameStream

MARKS: dict[str, Literal["eou", "eob"]] = {"<EOU>": "eou", "<EOB>": "eob"}
"""Pieces of dialogue models that are not text."""
FEATURE_SECONDS = 0.01
"""The hop of feature frames in every family that streams."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How a session is searched and cut into utterances.

    endpoints: None for one utterance from start to end. restarts: the search starts again at each endpoint,
    as in WeNet; otherwise it continues, and the finals together equal the offline result. A beam that
    continues puts only what all its hypotheses share into a final. keeps: the end has `search.nbest`
    hypotheses of the whole session, so nothing is forgotten. detects: the speech detector is used too.
    """

    search: SearchOptions = field(default_factory=SearchOptions)
    endpoints: EndpointRules | None = field(default_factory=EndpointRules)
    restarts: bool = False
    keeps: bool = False
    detects: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidRequest for contradictory options."""
        if self.restarts and self.keeps:
            raise InvalidRequest("a search that restarts at endpoints has no hypotheses of the whole session")


class LiveSession:
    """One session. Feed it with `push` and `finish`; its group's steps return the events."""

    def __init__(
        self,
        stream: FrameStream,
        state: LiveState,
        options: LiveOptions,
        tokenizer: Tokenizer,
        frame_seconds: float,
        voice: Voice | None = None,
    ) -> None:
        self.stream, self.state, self.options = stream, state, options
        self.has_ended = False
        self._tokenizer, self._frame_seconds, self._voice = tokenizer, frame_seconds, voice
        self._marks = {token: MARKS[piece] for token, piece in enumerate(tokenizer.pieces) if piece in MARKS}
        self._samples = 0
        self._frames = 0
        self._began = 0  # the utterance's first frame
        self._given = 0  # tokens at the front of the search's hypotheses that are already final
        self._marked = 0  # tokens of the utterance whose marks were already reported
        self._last: Partial | None = None

    def push(self, samples: NDArray[np.float32]) -> None:
        """Add samples, [N] float32 at 16 kHz in -1 … 1. Raises ValueError after the end."""
        self.stream.push(samples)
        self._samples += len(samples)
        if self._voice is not None:
            self._voice.push(samples)

    def finish(self) -> None:
        self.stream.finish()

    @property
    def frames(self) -> int:
        """The number of encoder frames searched."""
        return self._frames

    def after_step(self, frames: int, *, last: bool) -> tuple[list[Event], bool]:
        """The events after `frames` more frames were searched, and whether the search must restart. Raises
        EngineError if the model's output was not finite."""
        if not self.state.is_finite:
            raise EngineError("the model's output for this session is not finite, so it has no words")
        self._frames += frames
        events = self._take_starts()
        path = behind(self.state.path, self._given)
        stable = len(path.tokens) if last else min(self.state.stable - self._given, len(path.tokens))
        marks, turn = self._read_marks(path, stable)
        events += marks
        reason: Reason | None = "end" if last else self._find_endpoint(path, turn)
        begins_anew = False
        if reason is not None:
            begins_anew = self.options.restarts and not last
            count = len(path.tokens) if last or begins_anew else self._cut(path, stable, turn, reason)
            done, path, stable = before(path, count), behind(path, count), stable - count
            next_frame = path.times[0] if path.tokens else self._frames
            events += self._finish_utterance(done, reason, min(next_frame, self._frames))
        if not last:
            events += self._partial(path, max(stable, 0))
            return events, begins_anew
        self.has_ended = True
        nbest = tuple(self.state.hypotheses()[: self.options.search.nbest]) if self.options.keeps else ()
        events.append(End(round(self._samples / SAMPLE_RATE, 6), self._frames, nbest))
        return events, False

    def _take_starts(self) -> list[Event]:
        """The beginnings of speech within the searched frames."""
        if self._voice is None:
            return []
        return [SpeechStarted(time) for time in self._voice.take_starts(self._frames * self._frame_seconds)]

    def _read_marks(self, path: Path, stable: int) -> tuple[list[Event], int]:
        """Marks not reported yet, and the number of tokens of the turn that one of them ends (0: none)."""
        events: list[Event] = []
        turn = 0
        for place in range(self._marked, stable):
            kind = self._marks.get(path.tokens[place])
            if kind is not None:
                events.append(Mark(kind, self._seconds(path.times[place])))
                turn = place + 1 if kind == "eou" else turn
        self._marked = max(self._marked, stable)
        return events, turn

    def _find_endpoint(self, path: Path, turn: int) -> Reason | None:
        rules = self.options.endpoints
        if rules is None:
            return None
        if turn:
            return "eou"
        return rules.find_end(
            has_words=any(token not in self._marks for token in path.tokens),
            silence=self.state.silence * self._frame_seconds,
            length=(self._frames - self._began) * self._frame_seconds,
            unvoiced=None
            if self._voice is None
            else self._voice.measure_unvoiced(self._frames * self._frame_seconds),
        )

    def _cut(self, path: Path, stable: int, turn: int, reason: Reason) -> int:
        """The number of tokens that an endpoint makes final: the turn's, else all stable ones, in whole
        words."""
        if reason == "eou":
            return turn
        if stable == len(path.tokens):
            return stable
        ends = (span.last for span in self._tokenizer.words(path.tokens))
        return max((end for end in ends if end <= stable), default=0)

    def _finish_utterance(self, path: Path, reason: Reason, end: int) -> list[Event]:
        """The final of these tokens, if any; the next utterance begins at `end`."""
        began, self._began = self._began, end
        count = len(path.tokens)
        self._marked = max(0, self._marked - count)
        if self.options.keeps:
            self._given += count
        elif not self.options.restarts:  # otherwise the group restarts the search
            self.state.forget(count)
        if not count:
            return []
        self._last = None
        return [
            Final(
                reason=reason,
                start=self._seconds(began),
                end=self._seconds(end),
                heard=self._samples / SAMPLE_RATE if reason == "end" else self._heard,
                text=self._tokenizer.decode(path.tokens).strip(),
                tokens=path.tokens,
                times=path.times,
                durations=path.durations,
                words=self._words(path),
            )
        ]

    def _partial(self, path: Path, stable: int) -> list[Event]:
        """The utterance so far, unless it equals the last partial."""
        if not path.tokens:
            return []
        partial = Partial(
            start=self._seconds(self._began),
            end=self._seconds(self._frames),
            text=self._tokenizer.decode(path.tokens).strip(),
            stable_text=self._tokenizer.decode(path.tokens[:stable]).strip(),
            tokens=path.tokens,
            times=path.times,
            stable=stable,
            words=self._words(path),
        )
        if self._last is not None and replace(partial, end=self._last.end) == self._last:
            return []
        self._last = partial
        return [partial]

    @property
    def _heard(self) -> float:
        """Seconds that the steps have read so far: at least one feature frame of their last encoder frame."""
        return (self._frames - 1) * self._frame_seconds + FEATURE_SECONDS

    def _words(self, path: Path) -> tuple[Word, ...]:
        return tuple(words_of(path.with_score(0.0), self._tokenizer, self._frame_seconds))

    def _seconds(self, frame: int) -> float:
        return round(frame * self._frame_seconds, 3)
