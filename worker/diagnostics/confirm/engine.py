"""The steps that need a running engine: memory over time, a crash of the child, sleep of the Mac.

They use the engine as a job's thread does, and psutil for its process.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import psutil
from numpy.typing import NDArray

from spool import clock
from spool.domain.recognition import Recognition
from spool.settings import Settings
from worker.diagnostics.bench import synthetic_speech
from worker.diagnostics.confirm.report import StepOutcome
from worker.engine.client import Engine
from worker.engine.memory_budget import CACHE_BYTES, engine_options
from worker.machine.hardware import this_machine
from worker.models.requests import DecodeRequest, SearchOptions

GROWTH = 1.1
"""Growth since the first fifth of the time beyond this factor is a leak."""
SETTLING_MINUTES = 15.0
"""Before that, growth may be due to MLX's bounded cache of freed buffers."""
SLEPT_SECONDS = 30.0
SLEEP_WAIT_SECONDS = 900.0
ANSWER_SECONDS = 600.0
RATE = 16_000
LARGEST = 8
"""Utterances in a round of the memory step."""
SEARCHES = (SearchOptions(), SearchOptions(decoder="beam", beam=4))


@contextmanager
def running(settings: Settings) -> Iterator[Engine]:
    """An engine with the options of a worker."""
    engine = Engine(engine_options(settings)).start()
    try:
        yield engine
    finally:
        engine.close()


def memory(settings: Settings, model: str, minutes: float) -> StepOutcome:
    """Run batches of random lengths for `minutes`; the engine's process must not grow."""
    speech = synthetic_speech(60.0)
    rng = np.random.default_rng(0)
    sizes: list[float] = []
    batches = 0
    with running(settings) as engine:
        engine.describe(model).result(ANSWER_SECONDS)
        for search in (
            *SEARCHES,
            *SEARCHES,
        ):  # the largest batches first: later ones need no new buffers
            _round(engine, model, search, [speech[: 30 * RATE]] * LARGEST)
        begun = last = clock.monotonic()
        pause = max(0.5, minutes * 60 / 100)
        while clock.monotonic() - begun < minutes * 60:
            lengths = rng.integers(RATE, 30 * RATE, int(rng.integers(1, LARGEST + 1)))
            search = SEARCHES[batches % len(SEARCHES)]
            _round(engine, model, search, [speech[: int(length)] for length in lengths])
            batches += 1
            if clock.monotonic() - last >= pause or not sizes:
                last = clock.monotonic()
                sizes.append(resident_bytes(engine.child_pid) / 2**20)
        sizes.append(resident_bytes(engine.child_pid) / 2**20)
    early, late = max(sizes[: max(1, len(sizes) // 5)]), max(sizes[-max(1, len(sizes) // 5) :])
    summary = f"{early:.0f} MiB at most in the first fifth, {late:.0f} in the last"
    summary += f"; {batches} rounds in {minutes:g} min"
    details = tuple(f"{at * 100 // len(sizes):3} %  {size:8.1f} MiB" for at, size in enumerate(sizes))
    if late <= GROWTH * early:
        return StepOutcome("ok", summary, details)
    if minutes < SETTLING_MINUTES and late - sizes[0] < CACHE_BYTES / 2**20:
        summary += f"; too short to tell: MLX's cache still fills, to {CACHE_BYTES >> 20} MiB"
        return StepOutcome("not possible here", summary, details)
    return StepOutcome("differs", summary, details)


def _round(engine: Engine, model: str, search: SearchOptions, utterances: list[NDArray[np.float32]]) -> None:
    futures = [
        engine.submit("confirm", samples, model, DecodeRequest(search=search)) for samples in utterances
    ]
    for future in futures:
        future.result(ANSWER_SECONDS)


def resident_bytes(pid: int | None) -> int:
    """The resident memory of a process. Raises psutil.NoSuchProcess once it has ended."""
    return int(psutil.Process(pid).memory_info().rss)


def crashes(settings: Settings, model: str) -> StepOutcome:
    """Kill the engine's child while it works, then abort it: every utterance must be answered as before."""
    utterances = [synthetic_speech(seconds) for seconds in (3.0, 5.0, 8.0, 4.0)]
    lines = []
    with running(settings) as engine:
        before = [_words(result) for result in _answers(engine, model, utterances)]
        for number in (signal.SIGKILL, signal.SIGABRT):
            restarts, pid = engine.stats.restarts, engine.child_pid
            assert pid is not None
            futures = [engine.submit("confirm", each, model) for each in utterances]
            os.kill(pid, number)
            after = [_words(future.result(ANSWER_SECONDS)) for future in futures]
            _until_restarted(engine, restarts)  # the answers may have come just before
            again = [_words(result) for result in _answers(engine, model, utterances)]
            same = "the same words" if after == again == before else "other words"
            lines.append(f"{number.name}: {engine.stats.restarts - restarts} restarts, {same}")
    good = all(line.endswith(": 1 restarts, the same words") for line in lines)
    return StepOutcome("ok" if good else "differs", "; ".join(lines))


def _until_restarted(engine: Engine, restarts: int) -> None:
    deadline = clock.monotonic() + ANSWER_SECONDS
    while engine.stats.restarts == restarts and clock.monotonic() < deadline:
        clock.sleep(0.02)


def sleep(settings: Settings, model: str, tell: Callable[[str], None]) -> StepOutcome:
    """Ask a person to let the Mac sleep while the engine is loaded; the words afterwards must be the same."""
    if not this_machine().apple_gpu:
        return StepOutcome("not possible here", "not a Mac")
    utterances = [synthetic_speech(5.0)]
    with running(settings) as engine:
        before = [_words(result) for result in _answers(engine, model, utterances)]
        tell("Within the next 15 minutes, put this Mac to sleep (Apple menu) for two minutes, then wake it.")
        slept = _wait_for_sleep(SLEEP_WAIT_SECONDS)
        if slept is None:
            return StepOutcome("not possible here", "the Mac did not sleep within 15 minutes")
        after = [_words(result) for result in _answers(engine, model, utterances)]
        restarts = engine.stats.restarts
    words = "the same" if after == before else "other"
    summary = f"slept {slept:.0f} s; {words} words afterwards, {restarts} restarts"
    return StepOutcome("ok" if after == before else "differs", summary)


def _wait_for_sleep(seconds: float) -> float | None:
    """How long the machine slept, by how far the wall clock moved ahead of the monotonic clock; None if it
    did not sleep."""
    deadline = clock.monotonic() + seconds
    while clock.monotonic() < deadline:
        wall, steady = clock.time(), clock.monotonic()
        clock.sleep(1.0)
        gone = (clock.time() - wall) - (clock.monotonic() - steady)
        if gone > SLEPT_SECONDS:
            return gone
    return None


def _answers(engine: Engine, model: str, utterances: list[NDArray[np.float32]]) -> list[Recognition]:
    futures = [engine.submit("confirm", each, model) for each in utterances]
    return [future.result(ANSWER_SECONDS) for future in futures]


def _words(result: Recognition) -> tuple[str, ...]:
    return tuple(word.text for word in result.words)
