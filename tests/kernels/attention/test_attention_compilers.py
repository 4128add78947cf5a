"""The sanitizers find a mistake of each kind that is seeded into the attention decoder's kernels."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernels.contracts import attention_cases
from ops.testbed.kernel_cases import DTYPES, Case, Launched, recorded
from tests.kernels.runtime.test_sanitizers import run

pytestmark = pytest.mark.integration

CASES = list(attention_cases())


def launched_by(case: Case, batch: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> Launched:
    with recorded(monkeypatch) as launches:
        case.run(*case.make(batch, DTYPES[dtype]))
    (launched,) = launches
    return launched


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


# One of each kind of bug; the others are of the same kind in other kernels.
QUICK = ("a diagonal begun before the last one is done", "a row of the table too many")


@pytest.mark.parametrize(
    "seeded",
    [seeded if seeded in QUICK else pytest.param(seeded, marks=pytest.mark.long) for seeded in SEEDED],
)
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
