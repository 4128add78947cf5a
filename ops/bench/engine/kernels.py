"""Operation by operation: MLX's own form against the kernel, CPU time of one thread. Writes nothing.

    python ops/bench/engine/kernels.py [--small] [--seconds 1.0]

Prints milliseconds (the best of several runs, processor time, so that a busy machine changes little) and
their ratio. `mlx` is what one would write with MLX's operations, `reference` the yardstick beside each
kernel. Shapes are those of the 114 M FastConformer (width 512, 8 utterances of 20 s) or, with --small, of the
demo model.
"""

# ruff: noqa: E402 - threads are counted and the BLAS is loaded before MLX is

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPOOL_KERNEL_THREADS"):
    os.environ[_name] = "1"
from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx
import numpy as np

from kernels.nn import convolution, elementwise
from kernels.runtime.device import kernel_status, use_backend
from kernels.search import expand as search_expand
from kernels.search import recombine
from kernels.search.expand import Bonus, expand_reference
from kernels.search.recombine import Limits, empty_beam
from kernels.search.recombine import recombine_reference as recombine_reference


@dataclass(frozen=True)
class Row:
    name: str
    mlx: Callable[[], object]
    reference: Callable[[], object]
    kernel: Callable[[], object]


@dataclass(frozen=True)
class Shape:
    batch: int
    frames: int
    width: int
    heads: int
    channels: int
    mels: int


LARGE = Shape(batch=8, frames=250, width=512, heads=8, channels=256, mels=80)
SMALL = Shape(batch=8, frames=125, width=144, heads=4, channels=144, mels=80)


def random(*shape: int) -> mx.array:
    array = mx.random.normal(shape)
    mx.eval(array)
    return array


def _dense(s: Shape) -> list[Row]:
    inner, x = random(s.batch, s.frames, 4 * s.width), random(s.batch, s.frames, s.width)
    w, b = random(s.width), random(s.width)
    content = random(s.batch, s.heads, s.frames, s.frames)
    position = random(s.batch, s.heads, s.frames, 2 * s.frames - 1)
    full, head = mx.full((s.batch,), s.frames, mx.int32), s.width // s.heads
    window = (-1, -1)
    gates, cell = (random(64, 2560), random(64, 2560)), random(64, 640)

    def plain_cell(entering: mx.array, recurrent: mx.array, cell: mx.array) -> tuple[mx.array, mx.array]:
        entry, forget, candidate, output = mx.split(entering + recurrent, 4, axis=-1)
        cell = mx.sigmoid(forget) * cell + mx.sigmoid(entry) * mx.tanh(candidate)
        return mx.sigmoid(output) * mx.tanh(cell), cell

    def plain_softmax() -> mx.array:
        row = 2 * s.frames - 1
        strides = (s.heads * s.frames * row, s.frames * row, row - 1, 1)
        shifted = mx.as_strided(position, content.shape, strides, offset=s.frames - 1)
        return mx.softmax((content + shifted) * head**-0.5, axis=-1)

    return [
        Row(
            "silu",
            lambda: inner * mx.sigmoid(inner),
            lambda: elementwise.silu_reference(inner),
            lambda: elementwise.silu(inner),
        ),
        Row(
            "layer norm",
            lambda: mx.fast.layer_norm(x, w, b, 1e-5),
            lambda: elementwise.layer_norm_reference(x, w, b),
            lambda: elementwise.layer_norm(x, w, b),
        ),
        Row(
            "LSTM cell, 64 rows, width 640",
            lambda: plain_cell(*gates, cell),
            lambda: elementwise.lstm_cell_reference(*gates, cell),
            lambda: elementwise.lstm_cell(*gates, cell),
        ),
        Row(
            "relative softmax",
            plain_softmax,
            lambda: elementwise.relative_softmax_reference(content, position, full, head, window),
            lambda: elementwise.relative_softmax(content, position, full, head, window),
        ),
    ]


def _convolutions(s: Shape) -> list[Row]:
    x, taps, shift = random(s.batch, s.frames, 2 * s.width), random(9, s.width), random(s.width)
    full = mx.full((s.batch,), s.frames, mx.int32)
    kernel1d = mx.contiguous(taps.T[..., None])

    def plain_glu() -> mx.array:
        value, gate = mx.split(x, 2, axis=-1)
        output = mx.conv1d(value * mx.sigmoid(gate), kernel1d, padding=4, groups=s.width) + shift
        return output * mx.sigmoid(output)

    images, image_full = (
        random(2, 2 * s.frames, s.mels // 4, s.channels),
        mx.full((2,), 2 * s.frames, mx.int32),
    )
    features, feature_full = random(2, 8 * s.frames, s.mels), mx.full((2,), 8 * s.frames, mx.int32)
    pair = (random(9, s.channels), random(s.channels))
    kernel2d = mx.contiguous(pair[0].T.reshape(s.channels, 3, 3, 1))

    def plain_depthwise(given: mx.array) -> mx.array:
        return mx.conv2d(mx.maximum(given, 0), kernel2d, stride=2, padding=1, groups=s.channels) + pair[1]

    return [
        Row(
            "GLU, depthwise 9, SiLU",
            plain_glu,
            lambda: convolution.glu_conv_reference(x, taps, shift, full, 4),
            lambda: convolution.glu_conv(x, taps, shift, full),
        ),
        Row(
            "depthwise 3x3 /2 (2 utterances)",
            lambda: plain_depthwise(images),
            lambda: convolution.depthwise_stride2_reference(images, *pair, image_full, relu=True, lead=1),
            lambda: convolution.depthwise_stride2(images, *pair, image_full, relu=True, lead=1),
        ),
        Row(
            "conv 1->C and depthwise (2 utt.)",
            lambda: plain_depthwise(mx.conv2d(features[..., None], kernel2d, stride=2, padding=1) + pair[1]),
            lambda: convolution.subsample_first_reference(features, pair, pair, feature_full, 1),
            lambda: convolution.subsample_first(features, pair, pair, feature_full),
        ),
    ]


def _beam(batch: int, beam: int, width: int) -> list[Row]:
    logits, durations = random(batch, beam, width + 5) * 3, mx.arange(5, dtype=mx.int32)
    scores, runs = random(batch, beam), mx.zeros((batch, beam), mx.int32)
    elementwise = Bonus(random(batch, beam, width - 1), mx.ones((batch,)))
    limits = Limits(mx.full((batch,), 250), mx.array([250, 10], mx.int32), width - 1, True)
    state = empty_beam(batch, beam, 128, limits)
    grown = expand_reference(logits, durations, scores, runs)
    mx.eval(logits, elementwise, state, grown)
    arguments = (logits, durations, scores, runs)
    name = f"K {beam}, B {batch}, V {width}"
    rows = []
    for what, bonus in (("expand", None), ("fused ", elementwise)):
        plain = partial(expand_reference, *arguments, bonus)
        rows.append(Row(f"{what} {name}", plain, plain, partial(search_expand.expand, *arguments, bonus)))
    settle = partial(recombine_reference, grown, state, limits)
    return [*rows, Row(f"settle {name}", settle, settle, partial(recombine.recombine, grown, state, limits))]


def milliseconds(call: Callable[[], object], seconds: float) -> float:
    """CPU time of the fastest call, all of this process's threads together."""
    mx.eval(call())
    taken: list[float] = []
    while sum(taken) < seconds or len(taken) < 3:
        begun = time.process_time()
        mx.eval(call())
        taken.append(time.process_time() - begun)
    return min(taken) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--small", action="store_true", help="shapes of the demo model")
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU time for each figure")
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    shape = SMALL if options.small else LARGE
    rows = _dense(shape) + _convolutions(shape)
    for beam, batch in ((4, 64), (8, 16), (8, 64), (16, 64), (32, 16)):
        rows += _beam(batch, beam, 129 if options.small else 1025)
    with use_backend("cpu"):
        print("\n".join(kernel_status()), f"numpy {np.__version__}, mlx {version('mlx')}", shape, sep="\n")
        print(f"{'operation':34}{'mlx':>10}{'reference':>11}{'kernel':>9}{'mlx/kernel':>12}   (ms)")
        for row in rows:
            mlx, reference, kernel = (
                milliseconds(call, options.seconds) for call in (row.mlx, row.reference, row.kernel)
            )
            print(f"{row.name:34}{mlx:10.2f}{reference:11.2f}{kernel:9.3f}{mlx / kernel:12.1f}", flush=True)


if __name__ == "__main__":
    main()
