"""The contract of every kernel, as cases for any machine: the tests run them, and `spool-worker confirm`."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from kernels.contracts.attention import attention_cases
from kernels.contracts.case import Case, lengths_of, normal
from kernels.contracts.search import search_cases
from kernels.contracts.wfst import wfst_cases
from kernels.nn import convolution, elementwise, features, few_rows


def _make_silu(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    return [normal(batch, 1401, dtype=dtype, scale=4)]


def _make_layer_norm(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    return [normal(batch, 3, 45, dtype=dtype), normal(45, dtype=dtype), normal(45, seed=1, dtype=dtype)]


def _make_residual(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    sides = [normal(batch, 3, 45, seed=seed, dtype=dtype) for seed in (0, 1)]
    return [*sides, *(normal(45, seed=seed, dtype=dtype) for seed in (2, 3))]


def _residual(call: Callable[..., tuple[mx.array, mx.array]], half: bool) -> Callable[..., mx.array]:
    return lambda *inputs: mx.concatenate(list(call(*inputs, half=half)), axis=-1)


def _make_lstm(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    gates = [normal(batch, 180, seed=seed, dtype=dtype, scale=3) for seed in (0, 1)]
    return [*gates, normal(batch, 45, dtype=dtype)]


def _lstm(call: Callable[..., tuple[mx.array, mx.array]]) -> Callable[..., mx.array]:
    return lambda *inputs: mx.concatenate(list(call(*inputs)), axis=1)


def _make_softmax(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    content = normal(batch, 2, 37, 37, dtype=dtype, scale=6)
    return [content, normal(batch, 2, 37, 73, dtype=dtype, scale=6), lengths_of(batch, 37)]


def _make_glu(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    weight = normal(9, 40, dtype=dtype, scale=0.3)
    return [normal(batch, 21, 80, dtype=dtype), weight, normal(40, dtype=dtype), lengths_of(batch, 21)]


def _make_depthwise(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    x, weight = normal(batch, 9, 7, 36, dtype=dtype), normal(9, 36, dtype=dtype, scale=0.3)
    return [x, weight, normal(36, dtype=dtype), lengths_of(batch, 9)]


def _make_first(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    weights = [normal(9, 36, seed=seed, dtype=dtype, scale=0.3) for seed in (1, 2)]
    biases = [normal(36, seed=seed, dtype=dtype) for seed in (3, 4)]
    return [
        normal(batch, 17, 11, dtype=dtype),
        weights[0],
        biases[0],
        weights[1],
        biases[1],
        lengths_of(batch, 17),
    ]


def _first(call: Callable[..., mx.array], lead: int) -> Callable[..., mx.array]:
    def run(
        x: mx.array, w1: mx.array, b1: mx.array, w2: mx.array, b2: mx.array, lengths: mx.array
    ) -> mx.array:
        return call(x, (w1, b1), (w2, b2), lengths, lead=lead)

    return run


def _triangles(bins: int, bands: int) -> features.Filters:
    """Bands that overlap, as of a mel scale; the last but one hears nothing."""
    from_centre = np.abs(np.arange(bins)[:, None] - np.linspace(0, bins - 1, bands)[None])
    weights = np.maximum(0, 1 - 0.3 * from_centre).astype(np.float32)
    weights[:, -2] = 0
    return features.filters_of(weights)


def _feature_cases() -> Iterator[Case]:
    filters = _triangles(61, 45)
    yield Case(
        "mel-bands",
        lambda batch, dtype: [mx.abs(normal(batch, 7, 61, dtype=dtype))],
        lambda power: features.mel_bands(power, filters),
        lambda power: features.mel_bands_reference(power, filters),
    )
    yield Case(
        "normalise-frames",
        lambda batch, dtype: [normal(batch, 53, 45, dtype=dtype, scale=3) - 9, lengths_of(batch, 53)],
        features.normalise_frames,
        features.normalise_frames_reference,
    )


def _encoder_cases() -> Iterator[Case]:
    yield Case("silu", _make_silu, elementwise.silu, elementwise.silu_reference)
    yield Case("layer_norm", _make_layer_norm, elementwise.layer_norm, elementwise.layer_norm_reference)
    for half in (False, True):
        run_residual, reference = elementwise.residual_norm, elementwise.residual_norm_reference
        name = f"residual-norm-{'half' if half else 'whole'}"
        yield Case(name, _make_residual, _residual(run_residual, half), _residual(reference, half))
    yield Case("lstm", _make_lstm, _lstm(elementwise.lstm_cell), _lstm(elementwise.lstm_cell_reference))
    for name, window in (("all", (-1, -1)), ("window", (5, 2)), ("left", (8, -1))):
        yield Case(
            f"softmax-{name}",
            _make_softmax,
            lambda a, b, n, w=window: elementwise.relative_softmax(a, b, n, 16, w),
            lambda a, b, n, w=window: elementwise.relative_softmax_reference(a, b, n, 16, w),
        )
    for lead in (4, 8):
        yield Case(
            f"glu-lead{lead}",
            _make_glu,
            partial(convolution.glu_conv, lead=lead),
            partial(convolution.glu_conv_reference, lead=lead),
        )
    plain: dict[str, Any] = {"lead": 8, "activates": False}
    yield Case(
        "glu-plain",
        _make_glu,
        partial(convolution.glu_conv, **plain),
        partial(convolution.glu_conv_reference, **plain),
    )
    for lead in (1, 2):
        for relu in (False, True):
            options: dict[str, Any] = {"lead": lead, "relu": relu}
            yield Case(
                f"depthwise-lead{lead}-{'relu' if relu else 'plain'}",
                _make_depthwise,
                lambda *a, options=options: convolution.depthwise_stride2(*a, **options),
                lambda *a, options=options: convolution.depthwise_stride2_reference(*a, **options),
            )
        run = _first(convolution.subsample_first, lead)
        yield Case(f"first-lead{lead}", _make_first, run, _first(convolution.subsample_first_reference, lead))


def _make_rows(batch: int, _: mx.Dtype) -> list[mx.array]:
    """Rows of two tables, a row of a state, and a label, of which every third is none."""
    labels = mx.array([-1 if row % 3 == 1 else row * 5 % 7 for row in range(batch)], mx.int32)
    return [*(normal(batch, 45, seed=seed) for seed in (0, 1)), normal(batch, 70, seed=2), labels]


def _joint(call: Callable[..., mx.array], activation: str) -> Callable[..., mx.array]:
    def run(left: mx.array, right: mx.array, _: mx.array, labels: mx.array) -> mx.array:
        packed = few_rows.pack_rows(normal(70, 45, seed=3, scale=0.2), normal(70, seed=4))
        own = mx.arange(len(labels), dtype=mx.int32)
        return call(left, right, mx.stack([mx.where(labels >= 0, own, -1), own]), packed, activation)

    return run


def _project(call: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def run(fresh: mx.array, _: mx.array, before: mx.array, labels: mx.array) -> mx.array:
        packed = few_rows.pack_rows(normal(70, 45, seed=3, scale=0.2), normal(70, seed=4))
        own = mx.arange(len(labels), dtype=mx.int32)
        return call(fresh, before, mx.stack([mx.where(labels >= 0, own, -1), own]), packed)

    return run


def _lstm_rows(call: Callable[..., tuple[mx.array, mx.array]], upper: bool) -> Callable[..., mx.array]:
    def run(hidden: mx.array, cell: mx.array, below: mx.array, labels: mx.array) -> mx.array:
        recurrent, lower = (normal(180, 45, seed=seed, scale=0.2) for seed in (3, 5))
        entering = normal(1 if upper else 7, 180, seed=4)
        packed = few_rows.pack_gates(recurrent, lower if upper else None, entering)
        rows = few_rows.Continued(np.arange(len(labels), dtype=np.int32), np.array(labels))
        stack = rows.steps(len(labels))
        steps = stack.upper if upper else stack.first
        return mx.concatenate(
            list(call(packed, steps, hidden, cell, below[:, :45] if upper else None)), axis=1
        )

    return run


def _row_cases() -> Iterator[Case]:
    for act in few_rows.ACTIVATIONS:
        run, reference = few_rows.joint_rows, few_rows.joint_rows_reference
        yield Case(f"joint-rows-{act}", _make_rows, _joint(run, act), _joint(reference, act))
    projects = _project(few_rows.project_rows), _project(few_rows.project_rows_reference)
    yield Case("project-rows", _make_rows, *projects)
    for upper in (False, True):
        steps = _lstm_rows(few_rows.lstm_rows, upper), _lstm_rows(few_rows.lstm_rows_reference, upper)
        yield Case(f"lstm-rows-{'upper' if upper else 'first'}", _make_rows, *steps)


CASES = [
    *search_cases(),
    *wfst_cases(),
    *_feature_cases(),
    *_encoder_cases(),
    *_row_cases(),
    *attention_cases(),
]
