"""A live session as the worker's process sees it: samples in, events out, even if the engine's child dies.

The state of a session is in the child. Where that is lost, because the child died, a step failed or the
model made room for another, the session's audio is sent again from its start: steps depend on the samples
alone, so the same events come in the same order, and those that were given before are not given twice. Owns
replay, what it cost, and admission; leaves jobs, protocols and recording to others.
"""

import contextlib
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from spool.errors import EngineCrashed, EngineFull, InvalidRequest, JobCancelled, SpoolError, StateLost
from spool.ids import new_id
from worker.decode.types import DecodeRequest, SearchOptions, UtteranceResult
from worker.engine.client import Engine
from worker.engine.protocol import SAMPLE_RATE
from worker.live.endpoint import EndpointRules
from worker.live.events import Event
from worker.live.feed import LiveAnswer, LiveFeed

FEED_SAMPLES = 5 * SAMPLE_RATE
"""What is sent at once at most, so that a replay does not keep other sessions waiting."""
MOST_REBUILDS = 5
"""Of a session's state without a new sample heard in between; then its audio is to blame."""
LIVE_SHARE = 0.5
"""Of the engine's time that live sessions may take together."""
MOST_SESSIONS = 64
MEASURED_SECONDS = 2.0
"""Audio after which what a session costs is known."""
UNMEASURED_SESSIONS = 4
"""That may be open before it is known what any session costs."""
_WAIT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """What a session asks: the model (a path or hub id), the search, the endpoints (None: none), whether the
    search begins anew behind each, and whether the speech detector listens."""

    model: str
    search: SearchOptions = field(default_factory=SearchOptions)
    endpoints: EndpointRules | None = field(default_factory=EndpointRules)
    restarts: bool = False
    detects: bool = False


class EngineSession:
    """One session; used from one thread. `engine_ns` is what its steps took, `wasted_ns` what was spent
    on rebuilding its state and on steps that nobody waited for: engine time of its job too."""

    def __init__(self, engine: Engine, request: LiveRequest, cancel: threading.Event | None = None) -> None:
        self.request = request
        self.samples = 0
        self.engine_ns = 0
        self.wasted_ns = 0
        self.rebuilds = 0
        self.chunk_seconds = 0.0
        self.has_ended = False
        self.weights: tuple[str | None, ...] | None = None
        """Whose the last answer was, as `ModelInfo.makers` has them."""
        self._engine = engine
        self._cancel = cancel or threading.Event()
        self._name = new_id("live")
        self._heard: list[NDArray[np.float32]] = []
        self._given = 0  # events

    def push(self, samples: NDArray[np.float32], *, last: bool = False, more: bool = False) -> list[Event]:
        """Hear the next samples, [N] float32 at 16 kHz in -1 … 1, and say what became known by them.

        last: nothing comes after these. more: the next ones wait already, so the engine waits a moment for
        them before it goes on with jobs. Waits for the engine, longer while its state is rebuilt. Keeps the
        audio, 64 kB a second. Raises InvalidRequest behind the end or for what the model cannot do,
        JobCancelled once the event given is set, EngineCrashed where these samples end the engine's process,
        and other EngineErrors; the session is then over.
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
        """Seconds of engine time that a second of audio takes; None before enough was heard."""
        seconds = self.samples / SAMPLE_RATE
        return self.engine_ns / 1e9 / seconds if seconds >= MEASURED_SECONDS else None

    def close(self) -> None:
        """End the session; what was not heard yet is dropped. Closing twice is harmless."""
        if self.has_ended:
            return
        self.has_ended = True
        self._heard.clear()
        gone = LiveFeed(self._name, self.samples, gone=True)
        with contextlib.suppress(SpoolError):  # an engine that is stopped keeps no session
            self._send(np.zeros(0, np.float32), gone, None)

    def _hear(self, piece: NDArray[np.float32], *, last: bool, more: bool) -> list[Event]:
        asked = self.request
        feed = LiveFeed(
            self._name,
            self.samples,
            last,
            more,
            endpoints=asked.endpoints,
            restarts=asked.restarts,
            detects=asked.detects,
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
        """Send all of the session's audio again; what it says that was not given before."""
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

    def _events_of(self, result: UtteranceResult) -> list[Event]:
        if not isinstance(result.output, LiveAnswer):
            raise InvalidRequest(f"{self.request.model} cannot hear a live session.")
        self.chunk_seconds = result.output.chunk_seconds
        self.weights = result.weights
        return list(result.output.events)

    def _send(
        self, samples: NDArray[np.float32], feed: LiveFeed, cancel: threading.Event | None
    ) -> "Future[UtteranceResult]":
        search, ask = self.request.search, DecodeRequest(step=feed)
        return self._engine.submit(self._name, samples, self.request.model, search, cancel, ask)

    def _wait(self, answer: "Future[UtteranceResult]") -> UtteranceResult | None:
        """The answer; None where the session's state is lost."""
        while True:
            try:
                return answer.result(_WAIT_SECONDS)
            except NotYet:
                if self._cancel.is_set():
                    answer.add_done_callback(self._waste)
                    raise JobCancelled from None
            except StateLost:
                return None

    def _waste(self, answer: "Future[UtteranceResult]") -> None:
        if answer.exception() is None:
            self.wasted_ns += answer.result().engine_ns


def _cut(samples: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Copies of the samples, in what may be sent at once."""
    own = np.array(samples, np.float32)
    return [own[first : first + FEED_SAMPLES] for first in range(0, len(own), FEED_SAMPLES)]


class LiveSessions:
    """The live sessions of one engine, and whether it can keep up with another. Thread-safe."""

    def __init__(self, engine: Engine, *, most: int = MOST_SESSIONS, share: float = LIVE_SHARE) -> None:
        """At most `most` sessions, and as many as take `share` of the engine's time by what was measured."""
        self._engine, self._most, self._share = engine, most, share
        self._lock = threading.Lock()
        self._sessions: list[EngineSession] = []
        self._cost: float | None = None

    @property
    def load(self) -> float:
        """Seconds of engine time that a second of all open sessions takes; of one that is new, what those
        that were measured last take on average. 0 where none ever was."""
        with self._lock:
            self._measure()
            return len(self._sessions) * (self._cost or 0.0)

    def open(self, request: LiveRequest, cancel: threading.Event | None = None) -> EngineSession:
        """A session at its start; `cancel` ends its waits. Raises EngineFull."""
        with self._lock:
            self._measure()
            refusal = self._refusal(len(self._sessions))
            if refusal is not None:
                raise EngineFull(refusal)
            return self._opened(request, cancel)

    def go_on(self, request: LiveRequest, cancel: threading.Event | None = None) -> EngineSession:
        """A session at its start for a client that was admitted already."""
        with self._lock:
            self._measure()
            return self._opened(request, cancel)

    def has_room(self, count: int) -> bool:
        """Whether another session may be opened beside so many."""
        with self._lock:
            self._measure()
            return self._refusal(count) is None

    def _refusal(self, count: int) -> str | None:
        """Why no session may be opened beside so many."""
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

    def _opened(self, request: LiveRequest, cancel: threading.Event | None) -> EngineSession:
        session = EngineSession(self._engine, request, cancel)
        self._sessions.append(session)
        return session

    def _measure(self) -> None:
        """Forget sessions that have ended, but not what they cost where no other is measured yet."""
        costs = [cost for session in self._sessions if (cost := session.cost) is not None]
        self._cost = sum(costs) / len(costs) if costs else self._cost
        self._sessions = [session for session in self._sessions if not session.has_ended]
