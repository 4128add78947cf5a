"""The loop of one engine's process in `peers.py`: takes batches, times each stage, answers in JSON lines.

The engine itself is three functions (`Engine`); the clocks are here, so that they are the same for all.
Runs in a peer's environment, with numpy and no more. Knows no engine.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
Made = Any  # what an engine makes of a stage: its own business
Seconds = tuple[float, float]  # of the processor, all threads of the process together, and of the wall

SEARCHES: dict[str, int | None] = {"greedy": None, "beam 4": 4, "beam 5": 5, "beam 8": 8}


class Engine(Protocol):
    """One peer with its model loaded. What each stage returns is computed, not promised."""

    def features(self, samples: list[Samples]) -> Made:
        """Log-mel features of a batch."""

    def encode(self, features: Made) -> Made:
        """Encoder frames of them."""

    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        """The tokens of the best hypothesis of each utterance; its text is made too, and thrown away."""


class Clock:
    """Seconds of processor and wall of each stage."""

    def __init__(self) -> None:
        self.stages: dict[str, Seconds] = {}

    def time(self, name: str, call: Callable[[], Made]) -> Made:
        begun = time.process_time(), time.perf_counter()
        made = call()
        self.stages[name] = time.process_time() - begun[0], time.perf_counter() - begun[1]
        return made


def run_batch(engine: Engine, samples: list[Samples], searches: list[str]) -> dict[str, Any]:
    """One batch through every stage, and every search over the same frames."""
    clock = Clock()
    features = clock.time("features", lambda: engine.features(samples))
    encoded = clock.time("encoder", lambda: engine.encode(features))
    tokens = {}
    for name in searches:
        tokens[name] = clock.time(name, lambda name=name: engine.search(encoded, SEARCHES[name]))  # type: ignore[misc]
    return {"stages": clock.stages, "tokens": tokens}


def answer_features(engine: Made, file: str) -> dict[str, Any]:
    """Greedy's tokens of one utterance whose features [T, mels] somebody else computed; for engines with
    `given`, which makes of them what `encode` takes."""
    return {"tokens": engine.search(engine.encode(engine.given(np.load(file))), None)}


def serve(
    make: Callable[[str], Engine], others: Mapping[str, Callable[[Any, Any], dict[str, Any]]] | None = None
) -> None:
    """`python -m … MODEL AUDIO.npz`: answers until its input ends.

    Asked {"batch": [numbers of utterances], "searches": [names]} it answers {"stages", "tokens"}. `others`:
    what else it answers, by the question's only key: called with the engine and what stands under the key.
    """
    model, audio = sys.argv[1:3]
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is no answer
    utterances = read_utterances(Path(audio))
    engine = make(model)
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        key = next(iter(asked))
        if others and key in others:
            answer = others[key](engine, asked[key])
        else:
            answer = run_batch(engine, [utterances[i] for i in asked["batch"]], asked["searches"])
        print(json.dumps(answer), file=out, flush=True)


def write_utterances(path: Path, utterances: list[Samples]) -> None:
    """All in one file, end to end."""
    np.savez(path, audio=np.concatenate(utterances), lengths=np.array([len(each) for each in utterances]))


def read_utterances(path: Path) -> list[Samples]:
    """What `write_utterances` wrote."""
    with np.load(path) as stored:
        return np.split(stored["audio"], np.cumsum(stored["lengths"])[:-1])
