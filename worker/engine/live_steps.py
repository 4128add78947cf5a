"""Live sessions of one model in the engine's process: feeds in, events out, many sessions per step.

Owns the sessions' state, which is lost with the process or when the model is evicted: a feed that does not
continue its session's state is answered with StateLost, and `worker.engine.live_session` sends the session's
audio again. Belongs to the thread that loaded the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Recognition
from spool.errors import EngineError, SpoolError, StateLost
from worker.engine.protocol import Failure
from worker.live.events import Event
from worker.live.feed import LiveAnswer, LiveFeed
from worker.live.group import LiveGroup
from worker.live.session import LiveOptions, LiveSession
from worker.models.base import SpeechModel
from worker.models.requests import DecodeRequest, SearchOptions


@dataclass(slots=True)
class _Open:
    group: LiveGroup
    session: LiveSession
    samples: int = 0


@dataclass(slots=True)
class _Fed:
    """The result of a feed so far. If `opened` is None, `error` says why."""

    feed: LiveFeed
    opened: _Open | None = None
    error: SpoolError | None = None
    events: list[Event] = field(default_factory=list)
    frames_before: int = 0


class LiveSteps:
    """The open sessions of one model."""

    def __init__(self, model: SpeechModel) -> None:
        self._model = model
        self._groups: dict[LiveOptions, LiveGroup] = {}
        self._open: dict[str, _Open] = {}

    def check(self, options: SearchOptions, feed: LiveFeed) -> None:
        """Raise InvalidRequest if the model does not support the options."""
        self._group(options, feed)

    def recognize(
        self,
        utterances: Sequence[NDArray[np.float32]],
        requests: Sequence[DecodeRequest],
    ) -> list[Recognition | Failure]:
        """One answer to each feed, in order; `output` is a `LiveAnswer`. Replayed feeds are stepped one by
        one, so that one that fails again fails alone. Never raises."""
        fed = []
        for samples, request in zip(utterances, requests, strict=True):
            assert isinstance(request.step, LiveFeed)
            fed.append(self._take(samples, request.search, request.step))
        together = [each for each in fed if each.opened is not None and not each.feed.replay]
        self._step(together)
        for each in fed:
            if each.opened is not None and each.feed.replay:
                self._step([each])
        return [self._answer(each) for each in fed]

    def _take(self, samples: NDArray[np.float32], options: SearchOptions, feed: LiveFeed) -> _Fed:
        """Give the samples to their session."""
        known = self._open.get(feed.session)
        if known is not None and (feed.offset == 0 or feed.gone):
            self._close(feed.session)
            known = None
        if feed.gone:
            return _Fed(feed, error=StateLost("The live session was closed."))
        try:
            if known is None and feed.offset == 0:
                group = self._group(options, feed)
                known = self._open[feed.session] = _Open(group, group.open())
            if known is None or known.samples != feed.offset:
                return _Fed(feed, error=StateLost())
            before = known.session.frames
            # Copied, since the slot is reused once this is answered.
            known.session.push(np.array(samples))
            known.samples += len(samples)
            if feed.last:
                known.session.finish()
        except SpoolError as error:
            self._close(feed.session)
            return _Fed(feed, error=error)
        return _Fed(feed, known, frames_before=before)

    def _step(self, fed: Sequence[_Fed]) -> None:
        """Step these sessions until none of them can make another step."""
        by_session = {id(each.opened.session): each for each in fed if each.opened is not None}
        for group in {id(each.opened.group): each.opened.group for each in fed if each.opened}.values():
            members = [s for s in group.sessions if id(s) in by_session]
            try:
                while group.can_step(members):
                    for result in group.step(members):
                        each = by_session[id(result.session)]
                        each.events += result.events
                        each.error = result.error
            except Exception as error:  # noqa: BLE001 - the state of each session is now unknown
                self._give_up([by_session[id(session)] for session in members], error)

    def _give_up(self, fed: Sequence[_Fed], error: Exception) -> None:
        for each in fed:
            self._close(each.feed.session)
            if each.feed.replay:
                kind = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
                each.error = EngineError(f"The model failed on this live session: {kind}")
            else:
                each.error = StateLost(f"A step of this session failed: {type(error).__name__}")

    def _answer(self, fed: _Fed) -> Recognition | Failure:
        if fed.opened is None:
            return Failure(fed.error or StateLost(), 0)
        frames = fed.opened.session.frames - fed.frames_before
        if fed.error is not None:
            self._close(fed.feed.session)
            return Failure(fed.error, frames)
        if fed.opened.session.has_ended:
            self._close(fed.feed.session)
        answer = LiveAnswer(tuple(fed.events), fed.opened.group.chunk_seconds)
        return Recognition(frames=frames, output=answer)

    def _group(self, options: SearchOptions, feed: LiveFeed) -> LiveGroup:
        live_options = LiveOptions(options, feed.endpoints, feed.restarts, detects=feed.detects)
        group = self._groups.get(live_options)
        if group is None:
            group = self._groups[live_options] = LiveGroup(self._model, live_options)
        return group

    def _close(self, name: str) -> None:
        known = self._open.pop(name, None)
        if known is not None and known.session in known.group.sessions:
            known.group.close(known.session)
            if not known.group.sessions:
                self._groups = {asked: group for asked, group in self._groups.items() if group.sessions}
