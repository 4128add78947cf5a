"""A live session in the worker's process: samples in, events out, even if the engine's child dies.

A session's state is in the child. If it is lost, because the child died, a step failed or the model was
evicted, the session's audio is sent again from its start: steps depend only on the samples, so the same
events come in the same order, and those already returned are skipped. Owns replay, its cost, and admission.
"""

import contextlib
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from spool import clock
from spool.domain.recognition import Recognition
from spool.errors import EngineCrashed, EngineFull, InvalidRequest, JobCancelled, SpoolError, StateLost
from spool.ids import new_id
from worker.engine.client import Engine
from worker.engine.protocol import SAMPLE_RATE
from worker.live.endpoint import EndpointRules
from worker.live.events import Event
from worker.live.feed import LiveAnswer, LiveFeed
from worker.models.requests import DecodeRequest, SearchOptions

FEED_SAMPLES = 5 * SAMPLE_RATE
"""The most samples sent at once, so that a replay does not delay other sessions."""
MOST_REBUILDS = 5
"""Consecutive rebuilds of a session's state without new audio, after which its audio is to blame."""
LIVE_SHARE = 0.5
"""The share of the engine's time that live sessions may take together."""
MOST_SESSIONS = 64
MEASURED_SECONDS = 2.0
"""Audio after which a session's cost counts as measured."""
UNMEASURED_SESSIONS = 4
"""Sessions that may be open before the cost of any was measured."""
_WAIT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """A session's options: the model (a path or hub id), the search, the endpoints (None: none), whether the
    search restarts after each, and whether the speech detector is used."""

    model: str
    search: SearchOptions = field(default_factory=SearchOptions)
    endpoints: EndpointRules | None = field(default_factory=EndpointRules)
    restarts: bool = False
    detects: bool = False


class EngineSession:
    """One session; used from one thread. `engine_ns` is the time of its steps, `wasted_ns` that of rebuilding
    its state and of abandoned steps, which is engine time of its job too."""

    def __init__(self, engine: Engine, request: LiveRequest, cancel: clock.Event | None = None) -> None:
        self.request = request
        self.samples = 0
        self.engine_ns = 0
        self.wasted_ns = 0
        self.rebuilds = 0
        self.chunk_seconds = 0.0
        self.has_ended = False
        self.weights: tuple[str | None, ...] | None = None
        """`ModelInfo.makers` of the last answer."""
        self._engine = engine
        self._cancel = cancel or clock.Event()
        self._name = new_id("live")
        self._heard: list[NDArray[np.float32]] = []
        self._given = 0  # events

    def push(self, samples: NDArray[np.float32], *, last: bool = False, more: bool = False) -> list[Event]:
        """Send the next samples, [N] float32 at 16 kHz in -1 … 1, and return the events they lead to.

        last: the audio ends with these. more: the next ones are already available, so the engine waits a
        moment for them before it continues with jobs. Waits for the engine, longer while the state is
        rebuilt. Keeps the audio, 64 kB a second. Raises InvalidRequest after the end or for what the model
        cannot do, JobCancelled once `cancel` is set, EngineCrashed if these samples crash the engine, and
        other EngineErrors; the session is then over.
        """
        if self.has_ended:
            raise InvalidRequest("The live session has ended; no audio can follow.")
        if self._cancel.is_set():
            self.close()
            raise JobCancelled
        events: list[Event] = []
        pieces = _cut(samples) or [np.zeros(0, np.float32)]
        for number, piece in enumerate(pieces):
            try:
                is_last = number == len(pieces) - 1
                events += self._hear(piece, last=last and is_last, more=more or not is_last)
            except SpoolError:
                self.close()
                raise
        if last:
            self.has_ended = True
            self._heard.clear()
        return events

    @property
    def cost(self) -> float | None:
        """Seconds of engine time per second of audio; None before enough audio was sent."""
        seconds = self.samples / SAMPLE_RATE
        return self.engine_ns / 1e9 / seconds if seconds >= MEASURED_SECONDS else None

    def close(self) -> None:
        """End the session and drop unprocessed audio. Closing twice is harmless."""
        if self.has_ended:
            return
        self.has_ended = True
        self._heard.clear()
        gone = LiveFeed(self._name, self.samples, gone=True)
        with contextlib.suppress(SpoolError):  # a stopped engine has no sessions
            self._send(np.zeros(0, np.float32), gone, None)

    def _hear(self, piece: NDArray[np.float32], *, last: bool, more: bool) -> list[Event]:
        request = self.request
        feed = LiveFeed(
            self._name,
            self.samples,
            last,
            more,
            endpoints=request.endpoints,
            restarts=request.restarts,
            detects=request.detects,
        )
        self._heard.append(piece)
        result = self._wait(self._send(piece, feed, self._cancel))
        if result is None:
            events = self._rebuilt(feed)
        else:
            self.engine_ns += result.engine_ns
            events = self._events_of(result)
        self.samples += len(piece)
        self._given += len(events)
        return events

    def _rebuilt(self, feed: LiveFeed) -> list[Event]:
        """Send all of the session's audio again; returns the events that were not returned before."""
        for _ in range(MOST_REBUILDS):
            self.rebuilds += 1
            events: list[Event] = []
            at = 0
            for number, piece in enumerate(self._heard, 1):
                is_last = number == len(self._heard)
                last, more = feed.last and is_last, feed.more or not is_last
                again = replace(feed, offset=at, last=last, more=more, replay=True)
                result = self._wait(self._send(piece, again, self._cancel))
                if result is None:
                    break
                self.wasted_ns += result.engine_ns
                events += self._events_of(result)
                at += len(piece)
            else:
                return events[self._given :]
        raise EngineCrashed(
            f"The engine lost this live session {MOST_REBUILDS} times in a row at "
            f"{self.samples / SAMPLE_RATE:.1f} s."
        )

    def _events_of(self, result: Recognition) -> list[Event]:
        if not isinstance(result.output, LiveAnswer):
            raise InvalidRequest(f"{self.request.model} cannot hear a live session.")
        self.chunk_seconds = result.output.chunk_seconds
        self.weights = result.makers
        return list(result.output.events)

    def _send(
        self, samples: NDArray[np.float32], feed: LiveFeed, cancel: clock.Event | None
    ) -> "Future[Recognition]":
        request = DecodeRequest(step=feed, search=self.request.search)
        return self._engine.submit(self._name, samples, self.request.model, request, cancel)

    def _wait(self, answer: "Future[Recognition]") -> Recognition | None:
        """The answer; None if the session's state is lost."""
        while True:
            try:
                return answer.result(_WAIT_SECONDS)
            except NotYet:
                if self._cancel.is_set():
                    answer.add_done_callback(self._waste)
                    raise JobCancelled from None
            except StateLost:
                return None

    def _waste(self, answer: "Future[Recognition]") -> None:
        if answer.exception() is None:
            self.wasted_ns += answer.result().engine_ns


def _cut(samples: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Copies of the samples in pieces of at most `FEED_SAMPLES`."""
    own = np.array(samples, np.float32)
    return [own[first : first + FEED_SAMPLES] for first in range(0, len(own), FEED_SAMPLES)]


class LiveSessions:
    """The live sessions of one engine, with admission control. Thread-safe."""

    def __init__(self, engine: Engine, *, most: int = MOST_SESSIONS, share: float = LIVE_SHARE) -> None:
        """Admit at most `most` sessions, and only as many as take `share` of the engine's time together."""
        self._engine, self._most, self._share = engine, most, share
        self._lock = clock.Lock()
        self._sessions: list[EngineSession] = []
        self._cost: float | None = None

    @property
    def load(self) -> float:
        """Seconds of engine time per second of audio of all open sessions; a new session counts with the
        average of the last measured ones, or 0 before any was measured."""
        with self._lock:
            self._measure()
            return len(self._sessions) * (self._cost or 0.0)

    def open(self, request: LiveRequest, cancel: clock.Event | None = None) -> EngineSession:
        """Open a session; `cancel` ends its waits. Raises EngineFull."""
        with self._lock:
            self._measure()
            refusal = self._refusal(len(self._sessions))
            if refusal is not None:
                raise EngineFull(refusal)
            return self._open_session(request, cancel)

    def go_on(self, request: LiveRequest, cancel: clock.Event | None = None) -> EngineSession:
        """Open a session for a client that was already admitted."""
        with self._lock:
            self._measure()
            return self._open_session(request, cancel)

    def has_room(self, count: int) -> bool:
        """Whether another session may be opened in addition to `count`."""
        with self._lock:
            self._measure()
            return self._refusal(count) is None

    def _refusal(self, count: int) -> str | None:
        """Why no session may be opened in addition to `count`; None if one may."""
        if count >= self._most:
            return f"This worker has {count} live sessions, as many as it takes."
        if self._cost is None and count >= UNMEASURED_SESSIONS:
            return f"What {count} new live sessions cost is not known yet; try again in a moment."
        if count and self._cost is not None and (count + 1) * self._cost > self._share:
            return (
                f"{count} live sessions take {count * self._cost:.0%} of this worker's engine; "
                f"another one would take it above {self._share:.0%}."
            )
        return None

    def _open_session(self, request: LiveRequest, cancel: clock.Event | None) -> EngineSession:
        session = EngineSession(self._engine, request, cancel)
        self._sessions.append(session)
        return session

    def _measure(self) -> None:
        """Forget sessions that have ended, but not what they cost where no other is measured yet."""
        costs = [cost for session in self._sessions if (cost := session.cost) is not None]
        self._cost = sum(costs) / len(costs) if costs else self._cost
        self._sessions = [session for session in self._sessions if not session.has_ended]
