"""Kernels of attention decoders and their encoders against MLX's own operations, CPU time of one thread.
Writes nothing.

    python -m ops.bench.engine.attention [--seconds 1.0] [--only NAME]

Shapes are those of Whisper tiny and base, 8 utterances with a beam of 5, and one window for the encoder's.
`mlx` is the usual way to write it with MLX's operations, `reference` the plain-MLX reference beside each
kernel. Prints milliseconds of the fastest of several calls, of one layer for attention.
"""

# ruff: noqa: E402 - threads are counted and the BLAS is loaded before MLX is

import argparse
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPOOL_KERNEL_THREADS"):
    os.environ[_name] = "1"
from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx

from kernels.attention.cross_attention import cross_attention, cross_attention_reference
from kernels.attention.dtw import dtw, dtw_reference
from kernels.attention.full_attention import full_attention, full_attention_reference
from kernels.attention.rules import forbidden_bits, rules_topk, rules_topk_reference
from kernels.attention.self_attention import places_of_parents, self_attention, self_attention_reference
from kernels.runtime.device import kernel_status, use_backend
from ops.bench.engine.kernels import Row, milliseconds, random

BATCH, BEAM, WIDTH, FRAMES = 8, 5, 64, 1500
ROWS = BATCH * BEAM


def _cross(name: str, heads: int, beam: int) -> Row:
    rows = BATCH * beam
    queries, values = random(rows, heads, WIDTH), random(BATCH, heads, FRAMES, WIDTH)
    keys = random(BATCH, heads, WIDTH, FRAMES)
    utterances, lengths = mx.repeat(mx.arange(BATCH), beam), mx.full((BATCH,), FRAMES, mx.int32)

    def plain() -> mx.array:
        laid = (queries * WIDTH**-0.5).reshape(BATCH, beam, heads, WIDTH).swapaxes(1, 2)
        return mx.softmax(laid @ keys, axis=-1) @ values

    arguments = (queries, keys, values, utterances, lengths)
    return Row(
        f"cross attention, {name}, beam {beam}",
        plain,
        partial(cross_attention_reference, *arguments, beam=beam),
        partial(cross_attention, *arguments, beam=beam),
    )


def _full(name: str, heads: int) -> Row:
    x = random(1, FRAMES, 3 * heads * WIDTH) * WIDTH**-0.25

    def plain() -> mx.array:
        queries, keys, values = x.reshape(1, FRAMES, 3, heads, WIDTH).transpose(2, 0, 3, 1, 4)
        return mx.softmax(queries @ keys.swapaxes(2, 3), axis=-1) @ values

    return Row(
        f"full attention, {name}, one window",
        plain,
        partial(full_attention_reference, x, heads),
        partial(full_attention, x, heads),
    )


def _self(name: str, heads: int, steps: int) -> Row:
    queries, parents = random(ROWS, heads, WIDTH), mx.random.randint(0, ROWS, (ROWS, steps))
    keys, values = random(ROWS, heads, 448, WIDTH), random(ROWS, heads, 448, WIDTH)
    lengths, position = mx.full((ROWS,), steps, mx.int32), mx.arange(steps)

    mx.eval(parents)

    def plain() -> mx.array:
        scaled = (queries * WIDTH**-0.5)[:, :, None]
        key, value = (pool[parents, :, position].swapaxes(1, 2) for pool in (keys, values))
        return mx.softmax(scaled @ key.swapaxes(-1, -2), axis=-1) @ value

    places = places_of_parents(parents, 448)
    arguments = (queries, keys, values, places, lengths)
    return Row(
        f"self attention, {name}, {steps} positions",
        plain,
        partial(self_attention_reference, *arguments),
        partial(self_attention, *arguments),
    )


def _rules(vocabulary: int) -> Row:
    first = vocabulary - 1501
    logits = random(ROWS, vocabulary) * 3
    forbidden = forbidden_bits([range(0, first, 600)], vocabulary)
    rules = mx.array([[0, 0, first + 3 * i, vocabulary, 1] for i in range(ROWS)], mx.int32)
    mask = mx.where(mx.arange(vocabulary) % 600 == 0, -mx.inf, 0.0)
    mx.eval(logits, rules, mask)

    def plain() -> mx.array:
        masked = logits + mask
        log_probs = masked - mx.logsumexp(masked, axis=-1, keepdims=True)
        best = mx.argpartition(-log_probs, BEAM, axis=-1)[:, : BEAM + 1]
        return mx.take_along_axis(log_probs, best, axis=-1)

    arguments = (logits, rules, forbidden)
    return Row(
        f"rules and top {BEAM + 1} of {vocabulary} (mlx: no times)",
        plain,
        partial(rules_topk_reference, *arguments, first_time=first, count=BEAM + 1),
        partial(rules_topk, *arguments, first_time=first, count=BEAM + 1),
    )


def _dtw(rows: int) -> Row:
    gains = random(BATCH, rows, FRAMES)
    arguments = (gains, mx.full((BATCH,), rows, mx.int32), mx.full((BATCH,), FRAMES, mx.int32))
    plain = partial(dtw_reference, *arguments)
    return Row(f"DTW of {rows} rows (mlx: numpy)", plain, plain, partial(dtw, *arguments))


def _rows() -> Iterator[Row]:
    for name, heads in (("tiny", 6), ("base", 8)):
        yield _full(name, heads)
        for beam in (1, BEAM):
            yield _cross(name, heads, beam)
        for steps in (10, 60, 220):
            yield _self(name, heads, steps)
    yield _rules(51864)
    yield _rules(51866)
    for rows in (30, 120):
        yield _dtw(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU time for each figure")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    with use_backend("cpu"):
        print("\n".join(kernel_status()))
        print(f"{'operation':48}{'mlx':>10}{'reference':>11}{'kernel':>9}{'mlx/kernel':>12}   (ms)")
        for row in _rows():
            if options.only not in row.name:
                continue
            mlx, reference, kernel = (
                milliseconds(call, options.seconds) for call in (row.mlx, row.reference, row.kernel)
            )
            print(f"{row.name:48}{mlx:10.2f}{reference:11.2f}{kernel:9.3f}{mlx / kernel:12.1f}", flush=True)


if __name__ == "__main__":
    main()
