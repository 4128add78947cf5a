"""How well the default diarizer tells speakers apart, and how fast: the figures of docs/speakers.md.

    OPENBLAS_NUM_THREADS=1 .venv/bin/python -m ops.accuracy.speakers SPEECH [--noise -46]

SPEECH is the folder with `manifest.jsonl`. Prints a row for each mixture, then the means; some
two minutes of one core.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
from numpy.typing import NDArray

from ops.accuracy.der import diarization_error
from ops.accuracy.mixtures import Mixture, read_manifest, tuning_mixtures, unseen_mixtures
from worker.diarization.clustering import ClusterOptions
from worker.diarization.diarizer import DiarizeOptions, Diarizer
from worker.diarization.windows import WindowOptions

Row = tuple[float, float, bool]
"""Error rate with a collar of 0.25 s, without one, and whether the speakers were counted right."""


def blocks_of(samples: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    for at in range(0, len(samples), 16_000):
        yield samples[at : at + 16_000]


def measure(diarizer: Diarizer, mixture: Mixture, options: DiarizeOptions) -> Row:
    result = diarizer.diarize(lambda: blocks_of(mixture.samples), options)
    guess = [(segment.start, segment.end, segment.speaker) for segment in result.segments]
    rates = [diarization_error(mixture.reference, guess, collar).total for collar in (0.25, 0.0)]
    return rates[0], rates[1], result.speakers == len({name for *_, name in mixture.reference})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.speakers", description=__doc__)
    parser.add_argument("speech", type=Path)
    parser.add_argument("--set", choices=("tuning", "unseen"), default="unseen")
    parser.add_argument(
        "--noise", type=float, help="pink noise in dBFS in place of -54 to -48 (unseen alone)"
    )
    parser.add_argument("--hop", type=float, default=0.4, help="seconds from window to window")
    asked = parser.parse_args()
    diarizer, windows = Diarizer(), WindowOptions(hop=asked.hop)
    manifest = read_manifest(asked.speech)
    unseen = asked.set == "unseen"
    mixtures = (
        unseen_mixtures(asked.speech, manifest, asked.noise)
        if unseen
        else tuning_mixtures(asked.speech, manifest)
    )
    rows: dict[str, list[Row]] = {"number unknown": [], "number known": []}
    seconds = busy = 0.0
    for mixture in mixtures:
        speakers = len({name for *_, name in mixture.reference})
        known = ClusterOptions(min_speakers=speakers, max_speakers=speakers)
        began = time.process_time()
        for title, clusters in zip(rows, (ClusterOptions(), known), strict=True):
            rows[title].append(measure(diarizer, mixture, DiarizeOptions(windows=windows, clusters=clusters)))
        busy += time.process_time() - began
        seconds += 2 * len(mixture.samples) / 16_000
        print(
            mixture.name,
            *(f"{title} {100 * row[-1][0]:.1f} %" for title, row in rows.items()),
            sep=", ",
            flush=True,
        )
    for title, results in rows.items():
        collar, plain, right = np.array(results, float).T
        print(
            f"{title}: DER {100 * collar.mean():.1f} % (+-0.25 s), {100 * plain.mean():.1f} % (no collar), "
            f"speakers counted right in {int(right.sum())} of {len(right)}"
        )
    print(f"{seconds / busy:.0f} times real time, processor time of all threads, scoring included")


if __name__ == "__main__":
    main()
