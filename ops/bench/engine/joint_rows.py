"""What it would cost to keep a transducer's products free of the batch, one for each utterance.

    OPENBLAS_NUM_THREADS=1 python -m ops.bench.engine.joint_rows [--width 640] [--labels 1030] [--rounds 20]

A joint of WIDTH to LABELS over B utterances of K rows: in one product, as the search makes it, and in B of K
rows each. Prints processor time a step and how many rows of the one product differ from the same rows alone.
"""

import argparse
import sys
import time
from collections.abc import Callable

from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 - behind OpenBLAS
import numpy as np  # noqa: E402

SHAPES = [(48, 1), (16, 4), (48, 4), (48, 8)]


def _milliseconds(product: Callable[[], mx.array], rounds: int) -> float:
    mx.eval(product())
    before = time.process_time()
    for _ in range(rounds):
        mx.eval(product())
    return (time.process_time() - before) / rounds * 1e3


def main(arguments: list[str] | None = None) -> int:
    """One line for each shape."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--labels", type=int, default=1030)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    weight = mx.array(rng.normal(size=(options.labels, options.width)).astype(np.float32)).T
    bias = mx.zeros((options.labels,))
    for utterances, beam in SHAPES:
        rows = mx.array(rng.normal(size=(utterances * beam, options.width)).astype(np.float32))
        own = [rows[first : first + beam] for first in range(0, utterances * beam, beam)]

        def together(rows: mx.array = rows) -> mx.array:
            return mx.addmm(bias, rows, weight)

        def apart(own: list[mx.array] = own) -> mx.array:
            return mx.concatenate([mx.addmm(bias, each, weight) for each in own])

        pairs = [[_milliseconds(way, options.rounds) for way in (together, apart)] for _ in range(3)]
        one, many = (min(pair[way] for pair in pairs) for way in range(2))
        differ = int((np.array(together()) != np.array(apart())).any(axis=1).sum())
        print(
            f"{utterances} utterances of {beam}: {one:.2f} ms together, {many:.2f} ms apart "
            f"({many / one:.1f} times); {differ} of {len(rows)} rows differ",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
