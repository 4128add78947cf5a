"""One small call of every kernel, ragged in each dimension, and what it launches."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from kernels import beam_step, device, fused, fused_conv
from kernels.ctc_beam import CtcTrail, ctc_beam, ctc_beam_reference
from kernels.expand import Expansion
from kernels.expand import expand as expand_reference
from kernels.merge import merge as merge_reference
from kernels.text import Argument, Kernel, Template

# What is held against the references: the CPU's build, or on a Mac, by hand, metal (docs/on-a-mac.md).
TESTED = os.environ.get("SPOOL_TEST_BACKEND", "cpu")

DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


def normal(*shape: int, seed: int = 0, dtype: mx.Dtype = mx.float32, scale: float = 1.0) -> mx.array:
    values = np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)
    return mx.array(values * np.float32(scale)).astype(dtype)


def lengths_of(batch: int, longest: int) -> mx.array:
    """Full, empty, one frame, then whatever: every length an utterance can have."""
    known = [longest, 0, 1]
    return mx.array([known[i] if i < 3 else i * 7 % (longest + 1) for i in range(batch)], mx.int32)


@dataclass(frozen=True)
class Case:
    """`make(batch, dtype)` gives the operation's inputs; `run` and `reference` take them."""

    name: str
    make: Callable[[int, mx.Dtype], list[mx.array]]
    run: Callable[..., mx.array]
    reference: Callable[..., mx.array]


def _make_silu(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    return [normal(batch, 1401, dtype=dtype, scale=4)]


def _make_layer_norm(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    return [normal(batch, 3, 45, dtype=dtype), normal(45, dtype=dtype), normal(45, seed=1, dtype=dtype)]


def _make_lstm(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    gates = [normal(batch, 180, seed=seed, dtype=dtype, scale=3) for seed in (0, 1)]
    return [*gates, normal(batch, 45, dtype=dtype)]


def _lstm(call: Callable[..., tuple[mx.array, mx.array]]) -> Callable[..., mx.array]:
    return lambda *inputs: mx.concatenate(call(*inputs), axis=1)


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


def _make_expand(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    labels, spread = normal(batch, 4, 70, dtype=dtype, scale=3), normal(batch, 4, 5, dtype=dtype)
    scores = normal(batch, 4, seed=1) - mx.arange(4) * 2.0
    finished, forced = normal(batch, 4, seed=2) > 1.0, normal(batch, 4, seed=3) > 1.0
    return [labels, spread, scores, finished, forced]


def _table(found: Expansion) -> mx.array:
    """All six outputs side by side, [B, 5K + 1]."""
    label_scores = mx.where(found.labels < 0, 0.0, found.label_scores)
    columns = [
        found.scores,
        found.parents,
        found.labels,
        found.durations,
        label_scores,
        found.finite[:, None],
    ]
    return mx.concatenate([each.astype(mx.float32) for each in columns], axis=1)


def _expand(call: Callable[..., Expansion]) -> Callable[..., mx.array]:
    durations = mx.array([0, 1, 2, 3, 4], mx.int32)
    return lambda labels, spread, *rest: _table(call(labels, spread, durations, *rest))


def _expand_rnnt(call: Callable[..., Expansion]) -> Callable[..., mx.array]:
    return lambda labels, _, *rest: _table(call(labels, None, None, *rest))


def _make_merge(batch: int, _: mx.Dtype) -> list[mx.array]:
    classes = (normal(batch, 7, seed=1) * 2).astype(mx.int32)
    return [normal(batch, 7), classes[:, :, None] == classes[:, None, :]]


def _finite(call: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """Dead slots as a number that can be subtracted."""
    return lambda scores, same: mx.maximum(call(scores, same), -1e9)


def _make_ctc(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    logits = normal(batch, 12, 39, dtype=dtype, scale=2)
    return [logits - mx.logsumexp(logits, axis=-1, keepdims=True), lengths_of(batch, 12)]


def _ctc(call: Callable[..., CtcTrail]) -> Callable[..., mx.array]:
    """All outputs side by side."""

    def run(log_probs: mx.array, lengths: mx.array) -> mx.array:
        found = call(log_probs, lengths, 5, 0.25, 9.0)
        columns = [each.astype(mx.float32).reshape(len(lengths), -1) for each in found]
        return mx.maximum(mx.concatenate(columns, axis=1), -1e9)

    return run


def _cases() -> Iterator[Case]:
    yield Case("expand", _make_expand, _expand(beam_step.expand), _expand(expand_reference))
    yield Case("expand-rnnt", _make_expand, _expand_rnnt(beam_step.expand), _expand_rnnt(expand_reference))
    yield Case("merge", _make_merge, _finite(beam_step.merge), _finite(merge_reference))
    yield Case("ctc-beam", _make_ctc, _ctc(ctc_beam), _ctc(ctc_beam_reference))
    yield Case("silu", _make_silu, fused.silu, fused.silu_reference)
    yield Case("layer_norm", _make_layer_norm, fused.layer_norm, fused.layer_norm_reference)
    yield Case("lstm", _make_lstm, _lstm(fused.lstm_cell), _lstm(fused.lstm_cell_reference))
    for name, window in (("all", (-1, -1)), ("window", (5, 2)), ("left", (8, -1))):
        yield Case(
            f"softmax-{name}",
            _make_softmax,
            lambda a, b, n, w=window: fused.relative_softmax(a, b, n, 16, w),
            lambda a, b, n, w=window: fused.relative_softmax_reference(a, b, n, 16, w),
        )
    for lead in (4, 8):
        yield Case(
            f"glu-lead{lead}",
            _make_glu,
            lambda *a, lead=lead: fused_conv.glu_conv(*a, lead=lead),
            lambda *a, lead=lead: fused_conv.glu_conv_reference(*a, lead=lead),
        )
    for lead in (1, 2):
        for relu in (False, True):
            options: dict[str, Any] = {"lead": lead, "relu": relu}
            yield Case(
                f"depthwise-lead{lead}-{'relu' if relu else 'plain'}",
                _make_depthwise,
                lambda *a, options=options: fused_conv.depthwise_stride2(*a, **options),
                lambda *a, options=options: fused_conv.depthwise_stride2_reference(*a, **options),
            )
        run = _first(fused_conv.subsample_first, lead)
        yield Case(f"first-lead{lead}", _make_first, run, _first(fused_conv.subsample_first_reference, lead))


CASES = list(_cases())
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def same_bits(a: mx.array, b: mx.array) -> bool:
    """Equal to the last bit, any NaN equal to any other."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    word = mx.uint32 if a.dtype.size == 4 else mx.uint16
    return bool(mx.all((a.view(word) == b.view(word)) | (mx.isnan(a) & mx.isnan(b))))


@dataclass(frozen=True)
class Launched:
    """What an operation would hand to a GPU."""

    kernel: Kernel
    inputs: list[mx.array]
    outputs: list[device.Output]
    template: Template
    threads: int
    threads_a_group: int

    @property
    def arguments(self) -> list[Argument]:
        return [Argument(device.dtype_name(each.dtype), tuple(each.shape)) for each in self.inputs]

    @property
    def made(self) -> list[str]:
        return [device.dtype_name(dtype) for _, dtype in self.outputs]


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Launched]]:
    """Operations called in the block are recorded with the launch a GPU would get, and return zeros."""
    seen: list[Launched] = []

    def record(
        kernel: Kernel,
        chosen: device.Backend,
        inputs: list[mx.array],
        outputs: list[device.Output],
        total: int,
        simdgroups: int,
        template: Template,
    ) -> list[mx.array]:
        seen.append(Launched(kernel, inputs, outputs, template, 32 * total, 32 * simdgroups))
        return [mx.zeros(shape, dtype) for shape, dtype in outputs]

    with monkeypatch.context() as patch, device.use_backend("metal"):
        patch.setattr(device, "_launch_on_gpu", record)
        yield seen
