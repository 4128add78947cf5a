"""Live sessions on one engine: many at once in this process, with utterances of jobs beside them."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ops.bench.live.run import BLOCK, Run, Samples, percentiles
from worker.audio import SAMPLE_RATE
from worker.engine.client import Engine
from worker.engine.live_session import EngineSession, LiveRequest
from worker.engine.protocol import EngineOptions
from worker.live.events import Event, Final, Partial
from worker.models.requests import DecodeRequest, SearchOptions


@dataclass(slots=True)
class Latencies:
    """Seconds, of all sessions of a run."""

    partial: list[float] = field(default_factory=list)
    final: list[float] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)
    wait: list[float] = field(default_factory=list)


class Listener:
    """Speaks one recording to one session, and times what comes back."""

    def __init__(self, session: EngineSession, samples: Samples, frame_seconds: float) -> None:
        self._session, self._samples, self._frame_seconds = session, samples, frame_seconds
        self._seen: dict[int, float] = {}
        self.latencies = Latencies()

    def run(self, seconds: float, delay: float) -> Latencies:
        """Speak for so long, after a delay."""
        time.sleep(delay)
        begun, at = time.monotonic(), 0
        total = round(seconds * SAMPLE_RATE)
        while at < total:
            # All that was spoken meanwhile, and no less than a block.
            spoken = int((time.monotonic() - begun) * SAMPLE_RATE)
            until = min(total, max(at + BLOCK, spoken // BLOCK * BLOCK))
            time.sleep(max(0.0, begun + until / SAMPLE_RATE - time.monotonic()))
            block = np.take(self._samples, range(at, until), mode="wrap")
            sent, worked = time.monotonic(), self._session.engine_ns
            events = self._session.push(block, last=until == total)
            now = time.monotonic() - begun
            self.latencies.wait.append(now + begun - sent - (self._session.engine_ns - worked) / 1e9)
            self.latencies.behind.append(now - (at + BLOCK) / SAMPLE_RATE)
            self._note(events, now)
            at = until
        return self.latencies

    def _note(self, events: Sequence[Event], now: float) -> None:
        for event in events:
            if not isinstance(event, Partial | Final):
                continue
            for frame in event.times:
                self._seen.setdefault(frame, now)
            if isinstance(event, Final):
                self._note_words(event, now)

    def _note_words(self, final: Final, now: float) -> None:
        for word in final.words:
            frames = [t for t in final.times if word.start - 1e-3 <= t * self._frame_seconds < word.end]
            if not frames:
                continue
            spoken = (frames[-1] + 1) * self._frame_seconds
            self.latencies.partial.append(self._seen[frames[-1]] - spoken)
            self.latencies.final.append(now - spoken)


class Archive:
    """Jobs for the engine, as long as the block runs: two utterances wait at any time."""

    def __init__(
        self, engine: Engine, model: str, search: SearchOptions, recordings: Sequence[Samples]
    ) -> None:
        self._engine, self._model, self._search, self._recordings = engine, model, search, recordings
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in range(2)]
        self._lock = threading.Lock()
        self._seconds = 0.0

    def __enter__(self) -> "Archive":
        self._begun = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @property
    def rtfx(self) -> float:
        """Seconds of audio a second so far."""
        return self._seconds / (time.monotonic() - self._begun)

    def _run(self, number: int) -> None:
        while not self._ended.is_set():
            samples = self._recordings[number % len(self._recordings)]
            self._engine.submit(
                f"job {number}", samples, self._model, DecodeRequest(search=self._search)
            ).result()
            with self._lock:
                self._seconds += len(samples) / SAMPLE_RATE
            number += 1


def measure(
    engine: Engine, request: LiveRequest, recordings: Sequence[Samples], count: int, seconds: float
) -> dict[str, Any]:
    """One number of sessions, as a line without the archive's part."""
    model = engine.describe(request.model).result()
    opened = [EngineSession(engine, request) for _ in range(count)]
    listeners = [
        Listener(session, recordings[number % len(recordings)], model.frame_seconds)
        for number, session in enumerate(opened)
    ]
    with ThreadPoolExecutor(max(count, 1)) as pool:
        runs = [pool.submit(each.run, seconds, i / count) for i, each in enumerate(listeners)]
        results = [run.result() for run in runs]
    engine_ns = sum(session.engine_ns for session in opened)
    return {
        "sessions": len(opened),
        "words": sum(len(each.final) for each in results),
        "partial_ms": percentiles([value for each in results for value in each.partial]),
        "final_ms": percentiles([value for each in results for value in each.final]),
        "behind_ms": percentiles([value for each in results for value in each.behind]),
        "wait_ms": percentiles([value for each in results for value in each.wait]),
        "engine_share": round(engine_ns / 1e9 / seconds, 3),
        "rebuilds": sum(session.rebuilds for session in opened),
    }


def measure_engine(model: str, recordings: Sequence[Samples], run: Run) -> Iterator[dict[str, Any]]:
    """A line for each number of sessions."""
    search = SearchOptions(att_context=run.context, head=run.head)
    options = EngineOptions(device=run.device, slots=96, slot_samples=40 * SAMPLE_RATE)
    engine = Engine(options).start()
    request = LiveRequest(model, search, detects=run.detects)
    try:
        engine.describe(model).result()
        for count in run.sessions:
            if not run.archive:
                yield measure(engine, request, recordings, count, run.seconds)
                continue
            with Archive(engine, model, search, recordings) as archive:
                if not count:
                    time.sleep(run.seconds)
                line = measure(engine, request, recordings, count, run.seconds)
                yield line | {"archive_rtfx": round(archive.rtfx, 1)}
    finally:
        engine.close()
