"""Live sessions at once on one engine: how long words take, and what an archive beside them loses.

    python -m ops.bench.live MODEL.nemo AUDIO… [--sessions 1 4 16] [--seconds 30] [--att-context 70,1]
        [--archive 0|1] [--device cpu|gpu]

Each session hears one of the recordings, over and over, in blocks of 80 ms at the pace of speech; the
sessions begin spread over a second, however many the engine would admit. With --archive the engine has jobs
to decode all the time, too: the same recordings. Prints a line of JSON for each number of sessions:

    {"sessions", "words", "partial_ms": {"p50", "p95", "p99"}, "final_ms": {…}, "behind_ms": {…},
     "engine_share", "archive_rtfx", "rebuilds"}

`partial_ms` is from the end of a word in the audio to the first partial or final that has its last token,
`final_ms` to its final, `behind_ms` how late a block was answered after it could be sent. `engine_share` is
the live sessions' part of the wall time, `archive_rtfx` the jobs' seconds of audio a second; the line with 0
sessions is the archive alone. The end of a word is the model's own, a token's frame.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.audio import SAMPLE_RATE, open_audio
from worker.decode.types import SearchOptions
from worker.engine.client import Engine
from worker.engine.live_session import EngineSession, LiveRequest
from worker.engine.protocol import EngineOptions
from worker.live.events import Event, Final, Partial

BLOCK = SAMPLE_RATE * 80 // 1000
Samples = NDArray[np.float32]


@dataclass(slots=True)
class Latencies:
    """Seconds, of all sessions of a run."""

    partial: list[float] = field(default_factory=list)
    final: list[float] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)


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
            events = self._session.push(block, last=until == total)
            now = time.monotonic() - begun
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
            self._engine.submit(f"job {number}", samples, self._model, self._search).result()
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
        "partial_ms": _percentiles([value for each in results for value in each.partial]),
        "final_ms": _percentiles([value for each in results for value in each.final]),
        "behind_ms": _percentiles([value for each in results for value in each.behind]),
        "engine_share": round(engine_ns / 1e9 / seconds, 3),
        "rebuilds": sum(session.rebuilds for session in opened),
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    p50, p95, p99 = np.percentile(np.array(seconds) * 1000, [50, 95, 99])
    return {"p50": round(p50, 1), "p95": round(p95, 1), "p99": round(p99, 1)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each number of sessions and print its line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("audio", nargs="+", type=Path)
    parser.add_argument("--sessions", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--att-context", default="70,1")
    parser.add_argument("--archive", type=int, choices=(0, 1), default=1)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args(arguments)
    left, right = map(int, asked.att_context.split(","))
    search = SearchOptions(att_context=(left, right))
    recordings = [_samples(path) for path in asked.audio]
    engine = Engine(EngineOptions(device=asked.device, slots=96, slot_samples=40 * SAMPLE_RATE)).start()
    try:
        engine.describe(asked.model).result()
        for count in asked.sessions:
            request = LiveRequest(asked.model, search)
            if not asked.archive:
                line = measure(engine, request, recordings, count, asked.seconds)
            else:
                with Archive(engine, asked.model, search, recordings) as archive:
                    if not count:
                        time.sleep(asked.seconds)
                    line = measure(engine, request, recordings, count, asked.seconds)
                    line["archive_rtfx"] = round(archive.rtfx, 1)
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    finally:
        engine.close()


def _samples(path: Path) -> Samples:
    with open_audio(path) as stream:
        blocks = [block[:, 0] for block in stream.blocks()]
    return np.concatenate(blocks)


if __name__ == "__main__":
    main()
