"""The attention decoder's kernels under clang's address spaces and g++'s sanitizers (see test_strict.py and
test_sanitizers.py beside), with a mistake of each kind seeded."""

import re
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from kernels.device import use_backend
from tests.kernels.attention.attention_cases import CASES, every_case
from tests.kernels.cases import DTYPES, Case, Launched, recorded
from tests.kernels.test_sanitizers import SANITIZERS, run
from tests.kernels.test_strict import RULES, complaints

ONE_OF_EACH = [case for case in CASES if case.name not in ("rules-few", "rules-text")]


def launched_by(case: Case, batch: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> Launched:
    with recorded(monkeypatch) as launches:
        case.run(*case.make(batch, DTYPES[dtype]))
    (launched,) = launches
    return launched


@every_case
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 9])
def test_an_attention_kernel_is_metal(
    case: Case, dtype: str, batch: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert complaints(launched_by(case, batch, dtype, monkeypatch), tmp_path) == ""


@every_case
def test_an_attention_kernel_uses_only_words_metal_has(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = launched_by(case, 2, "float32", monkeypatch).kernel
    code = re.sub(r"//[^\n]*", "", kernel.header + kernel.body)
    for pattern, why in RULES.items():
        assert not re.search(pattern, code), f"{kernel.name}: {why}"
    for comment in re.findall(r"//[^\n]*", kernel.body):
        assert not re.search(r"_(shape|strides|ndim)\b|thread_position|thread_index", comment)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda case: case.name)
def test_an_attention_kernel_is_clean(
    case: Case, sanitizer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    launched = launched_by(case, 2, "float32", monkeypatch)
    status, output, made = run(launched, sanitizer, tmp_path)
    assert (status, output) == (0, "")
    with use_backend("cpu"):
        expected = np.array(case.run(*case.make(2, mx.float32)))[..., : launched.outputs[0][0][-1]]
    found = np.frombuffer(made, launched.made[0], expected.size).reshape(expected.shape)
    np.testing.assert_array_equal(found.astype(np.float32), expected)


TOGETHER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
SEEDED = {
    "queries used before all of them are there": (
        "cross-attention",
        "thread",
        "* scale;\n  " + TOGETHER,
        "* scale;\n",
        "data race",
    ),
    "weights used before all of them are there": (
        "self-attention",
        "thread",
        "put_slots<float>(w, lane, e);\n    simdgroup_barrier(mem_flags::mem_threadgroup);\n",
        "put_slots<float>(w, lane, e);\n",
        "data race",
    ),
    "sums used before all of them are there": (
        "rules-many",
        "thread",
        "chunk_sum[c] = sum;\n}\n" + TOGETHER,
        "chunk_sum[c] = sum;\n}\n",
        "data race",
    ),
    "a diagonal begun before the last one is done": (
        "dtw",
        "thread",
        "is_down ? 1 : 2;\n  }\n  " + TOGETHER,
        "is_down ? 1 : 2;\n  }\n",
        "data race",
    ),
    "a row of the table too many": (
        "self-attention",
        "address",
        "auto place = places + row * steps;",
        "auto place = places + (row + 4) * steps;",
        "heap-buffer-overflow",
    ),
}


@pytest.mark.parametrize("seeded", SEEDED)
def test_a_bug_seeded_in_an_attention_kernel_is_found(
    seeded: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, sanitizer, before, after, expected = SEEDED[seeded]
    launched = launched_by(next(case for case in CASES if case.name == name), 2, "float32", monkeypatch)
    assert before in launched.kernel.body
    body = launched.kernel.body.replace(before, after, 1)
    status, output, _ = run(
        replace(launched, kernel=replace(launched.kernel, body=body)), sanitizer, tmp_path
    )
    assert status != 0
    assert expected in output
