"""What boosted phrases cost the engine: utterances of many jobs in one batch, each with a list of its own.

    python -m ops.bench.engine.phrases samples/demo-tdt/long/pauses.flac --jobs 16 --phrases 100

The same audio goes to the same engine without phrases, with one list for all and with a list a job, in turns.
Prints the least CPU seconds of the engine's process for all utterances (a shared machine's wall time tells
nothing), and those of the first turn, which builds the trees.
"""

import argparse
import random
from pathlib import Path

import numpy as np
import psutil

from worker.audio import SAMPLE_RATE, open_audio
from worker.decode.types import DecodeRequest, SearchOptions
from worker.engine.client import Engine
from worker.engine.protocol import NOTHING, EngineOptions
from worker.engine.scheduler import BatchLimits

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(chance: random.Random, count: int) -> tuple[str, ...]:
    """Phrases of one to three made-up words."""

    def word() -> str:
        return "".join(chance.choices(LETTERS, k=chance.randint(3, 9)))

    return tuple(" ".join(word() for _ in range(chance.randint(1, 3))) for _ in range(count))


def batch_seconds(
    engine: Engine, model: str, audio: np.ndarray, asks: list[DecodeRequest], beam: int
) -> float:
    """CPU seconds of the engine's process for one utterance of each job."""
    child = psutil.Process(engine.child_pid)
    before = sum(child.cpu_times()[:2])
    options = SearchOptions(decoder="beam" if beam > 1 else "greedy", beam=beam)
    futures = [
        engine.submit(f"job{number}", audio, model, options, ask=ask) for number, ask in enumerate(asks)
    ]
    for future in futures:
        future.result()
    return sum(child.cpu_times()[:2]) - before


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--model", default=str(Path(__file__).parents[3] / "models" / "demo"))
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--phrases", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--beam", type=int, default=8)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    with open_audio(arguments.recording) as stream:
        audio = np.concatenate([block[:, 0] for block in stream.blocks()])
    audio = np.resize(audio, int(arguments.seconds * SAMPLE_RATE))
    chance = random.Random(7)
    lists = [words(chance, arguments.phrases) for _ in range(arguments.jobs)]
    kinds = {
        "none": [NOTHING] * arguments.jobs,
        "one list for all": [DecodeRequest(phrases=lists[0])] * arguments.jobs,
        "a list a job": [DecodeRequest(phrases=each) for each in lists],
    }
    limits = BatchLimits(utterances=arguments.jobs, samples=arguments.jobs * len(audio))
    options = EngineOptions(slots=arguments.jobs, slot_samples=len(audio), limits=limits)
    engine = Engine(options).start()
    try:
        engine.describe(arguments.model).result()
        taken: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(arguments.turns + 1):
            for kind, asks in kinds.items():
                taken[kind].append(batch_seconds(engine, arguments.model, audio, asks, arguments.beam))
    finally:
        engine.close()
    plain = min(taken["none"][1:])
    print(
        f"{arguments.jobs} jobs x {arguments.seconds:g} s, beam {arguments.beam}, "
        f"{arguments.phrases} phrases a list"
    )
    for kind, (first, *rest) in taken.items():
        print(f"{kind:17} {min(rest):7.3f} s  x{min(rest) / plain:.2f}   first {first:.3f} s")


if __name__ == "__main__":
    main()
