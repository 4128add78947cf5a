"""Steps the live sessions of one model and one set of options, many at once.

Sessions of any age share a batch and do not depend on each other. Belongs to the thread that loaded the
model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from spool.domain.search.searches import CTC_BEAM
from spool.errors import EngineError, InvalidRequest
from worker.decode.checks import check_context
from worker.decode.live.base import LiveSearch
from worker.decode.live.beam import LiveBeam
from worker.decode.live.ctc_beam import LiveCtcBeam
from worker.decode.live.greedy import LiveCtcGreedy, LiveGreedy
from worker.decode.search import resolve_search
from worker.live.events import Event
from worker.live.session import LiveOptions, LiveSession
from worker.live.voice import Voice
from worker.models.base import SpeechModel
from worker.models.requests import SearchOptions
from worker.models.streaming import require_streaming
from worker.speech.listener import load_detector


@dataclass(frozen=True, slots=True)
class StepResult:
    """One session's result of a step: events, or the error that ended it."""

    session: LiveSession
    events: tuple[Event, ...]
    error: EngineError | None = None


class LiveGroup:
    """Opens sessions and steps them."""

    def __init__(self, model: SpeechModel, options: LiveOptions) -> None:
        """Raises InvalidRequest if the model or this version does not support the options."""
        self._model = require_streaming(model)
        check_context(model, options.search)
        self._search = live_search(model, options.search)
        self._options = options
        # None means the model's default, which a stream reports.
        self.context = self._model.open_stream(options.search.att_context).context
        self.sessions: list[LiveSession] = []

    @property
    def chunk_seconds(self) -> float:
        """Seconds of audio per step."""
        return (self.context[1] + 1) * self._model.info.frame_seconds

    def open(self) -> LiveSession:
        session = LiveSession(
            self._model.open_stream(self.context),
            self._search.open(),
            self._options,
            self._model.tokenizer,
            self._model.info.frame_seconds,
            Voice(load_detector()) if self._options.detects else None,
        )
        self.sessions.append(session)
        return session

    def close(self, session: LiveSession) -> None:
        """Remove a session, even with audio left."""
        self.sessions.remove(session)

    @property
    def is_ready(self) -> bool:
        """Whether some session can make a step."""
        return self.can_step(self.sessions)

    def can_step(self, among: Sequence[LiveSession]) -> bool:
        """Whether one of these can make a step: it is in the group, and has audio or its end to process."""
        return any(session.stream.is_ready or session.stream.has_ended for session in self._of(among))

    def step(self, among: Sequence[LiveSession] | None = None) -> list[StepResult]:
        """Make one step for each session (of `among`) that can, in the order they were opened. A session that
        has ended leaves the group."""
        sessions = self.sessions if among is None else self._of(among)
        ready = [session for session in sessions if session.stream.is_ready]
        over = [session for session in sessions if session.stream.has_ended]
        if not ready and not over:
            return []
        frames = self._model.step([session.stream for session in ready]) if ready else []
        # These streams have no frames left, but their searches must still be told of the end.
        frames += [mx.zeros((0, 0))] * len(over)
        stepped = ready + over
        last = [session.stream.has_ended for session in stepped]
        self._search.advance([session.state for session in stepped], frames, last)
        results = [
            self._result(session, len(new), end)
            for session, new, end in zip(stepped, frames, last, strict=True)
        ]
        for result in results:
            if result.error is not None or result.session.has_ended:
                self.close(result.session)
        return results

    def _of(self, among: Sequence[LiveSession]) -> list[LiveSession]:
        return [session for session in self.sessions if session in among]

    def _result(self, session: LiveSession, frames: int, last: bool) -> StepResult:
        try:
            events, begins_anew = session.after_step(frames, last=last)
        except EngineError as error:
            return StepResult(session, (), error)
        if begins_anew:
            self._search.restart(session.state)
        return StepResult(session, tuple(events))


def live_search(model: SpeechModel, options: SearchOptions) -> LiveSearch[Any]:
    """The streaming search for these options. Raises InvalidRequest."""
    chosen = resolve_search(model, options)
    head = chosen.head
    if options.blank_penalty:
        raise InvalidRequest("blank_penalty: not supported in a live session")
    fixed = options.scores == "fixed"
    network = model.heads[head]
    if head in ("tdt", "rnnt"):
        symbols = options.max_symbols or network.max_symbols
        if options.decoder == "greedy":
            return LiveGreedy(network, symbols, fixed=fixed)
        if network.ctc is None:
            return LiveBeam(network, options.beam, symbols, fixed=fixed)
    if head == "ctc" and options.decoder == "greedy":
        return LiveCtcGreedy(network, fixed=fixed)
    if head == "ctc" and chosen == CTC_BEAM:
        return LiveCtcBeam(network, options.beam, options.beta, fixed=fixed)
    raise InvalidRequest(
        f"decoder {options.decoder}: not supported for this model's {head} head in a live session; use greedy"
        + (", or beam with alignments best" if head == "ctc" else "")
    )
