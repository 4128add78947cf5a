"""How fast the witness is: hearing a recording, and judging its words, each by the processor's time.

    OMP_NUM_THREADS=1 taskset -c 0 python -m ops.bench.engine.witness [--minutes 10] [--rounds 3] [--batch 8]

The recording is the readers of `samples/open` over and over. Prints times real time, the best of the rounds,
which alternate, and the elapsed time over the processor's.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
import soundfile
from numpy.typing import NDArray

import worker.local.witness as local
from worker.witness.judge import check_transcript
from worker.witness.transcripts import GivenSegment, GivenTranscript, GivenWord

RATE = 16_000
SAMPLES = Path(__file__).parents[3] / "samples" / "open"


def make_recording(minutes: float) -> tuple[NDArray[np.float32], GivenTranscript]:
    """Readers one after another with pauses, float32 [n, 1], and what they say."""
    rows = [json.loads(line) for line in (SAMPLES / "manifest.jsonl").read_text().splitlines()]
    clips = [
        (soundfile.read(SAMPLES / row["file"], dtype="float32")[0], str(row["text"]))
        for row in rows
        if row["file"].startswith("readers/")
    ]
    parts: list[NDArray[np.float32]] = []
    segments: list[GivenSegment] = []
    at = number = 0
    while at < minutes * 60 * RATE:
        samples, text = clips[number % len(clips)]
        words = tuple(map(GivenWord, text.split()))
        segments.append(GivenSegment(at / RATE, (at + len(samples)) / RATE, text, words))
        parts += [samples, np.zeros(RATE // 2, np.float32)]
        at += len(samples) + RATE // 2
        number += 1
    return np.concatenate(parts)[:, None], GivenTranscript(tuple(segments))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 4, 8], help="windows at once")
    asked = parser.parse_args()
    samples, said = make_recording(asked.minutes)
    listener = local.load_listener()
    blocks = [samples[at : at + 10 * RATE] for at in range(0, len(samples), 10 * RATE)]
    (frames,) = listener.hear(blocks)
    seconds = len(samples) / RATE

    def hear(batch: int) -> None:
        local.WINDOWS_AT_ONCE = batch
        listener.hear(blocks)

    works: dict[str, Callable[[], object]] = {
        f"hearing, {batch} windows at once": partial(hear, batch) for batch in asked.batch
    }
    works["judging"] = partial(check_transcript, said, [frames], listener.lexicon)
    best = dict.fromkeys(works, (float("inf"), 0.0))
    for _ in range(asked.rounds):
        for name, work in works.items():
            processor, wall = time.process_time(), time.perf_counter()
            work()
            used = time.process_time() - processor
            best[name] = min(best[name], (used, time.perf_counter() - wall))
    for name, (used, elapsed) in best.items():
        print(f"{name}: {seconds / used:.0f} x real time; elapsed {elapsed / used:.2f} of that")


if __name__ == "__main__":
    main()
