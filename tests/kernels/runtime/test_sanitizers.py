"""The kernels in 32 fibers under the thread and address sanitizers, and what these find of a seeded bug.

A fiber counts as a thread to the thread sanitizer: a missing barrier is a data race. Needs g++ with libtsan
and libasan, which Debian's brings.
"""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from kernels.contracts import CASES, Case
from kernels.runtime import CPU_SHIM, Kernel, cpu_text, use_backend
from ops.testbed.kernel_cases import Launched, recorded

pytestmark = [pytest.mark.integration, pytest.mark.long]  # a build of each kernel for each sanitizer

SANITIZERS = {"thread": "-fsanitize=thread", "address": "-fsanitize=address,undefined"}
FLAGS = ["-std=c++17", "-O1", "-g", "-march=native", "-ffp-contract=off", "-pthread", "-Wno-tsan"]
QUIET = {
    "TSAN_OPTIONS": "report_thread_leaks=0 exitcode=66",
    # The fibers have stacks of their own.
    "ASAN_OPTIONS": "detect_leaks=0 detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "halt_on_error=1",
}
# One of each body: their variants differ in constants alone.
NAMES = {
    "silu",
    "lstm",
    "layer_norm",
    "softmax-window",
    "glu-lead4",
    "depthwise-lead1-relu",
    "first-lead2",
    "expand-late",
    "recombine",
    "look-adds",
    "walk",
    "ctc-beam-fixed",
    "wfst-search",
    "wfst-lattice",
    "cross-attention",
    "self-attention",
    "rules-many",
    "dtw",
}
CHECKED = [case for case in CASES if case.name in NAMES]


def build(launched: Launched, sanitizer: str, folder: Path) -> Path:
    source, program = folder / "kernel.cpp", folder / "kernel"
    text = cpu_text(launched.kernel, launched.arguments, launched.made, launched.template)
    source.write_text(text + '#include "program.h"\n')
    compiler = shutil.which("g++")
    assert compiler, "the sanitizers need g++"
    command = [
        compiler,
        *FLAGS,
        "-DSIMD_W=32",
        SANITIZERS[sanitizer],
        f"-I{CPU_SHIM}",
        str(source),
        "-o",
        str(program),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def buffers_of(launched: Launched) -> list[np.ndarray]:
    buffers = []
    for name, array in zip(launched.kernel.inputs, launched.inputs, strict=True):
        buffers.append(np.array(array))
        if launched.kernel.wants(name)[0]:
            buffers.append(np.array(array.shape, np.int32))
    outputs = zip(launched.outputs, launched.made, strict=True)
    return buffers + [np.zeros(shape, np.dtype(made)) for (shape, _), made in outputs]


def run(launched: Launched, sanitizer: str, folder: Path) -> tuple[int, str, bytes]:
    """Exit status, what it said, and the bytes of all outputs."""
    program, given, got = build(launched, sanitizer, folder), folder / "in", folder / "out"
    buffers = buffers_of(launched)
    head = [launched.threads, 1, 1, launched.threads_a_group, 1, 1, len(buffers)]
    with given.open("wb") as file:
        file.write(np.array(head, np.uint32).tobytes())
        for buffer in buffers:
            file.write(np.uint32(buffer.nbytes).tobytes() + buffer.tobytes())
    command = [str(program), str(given), str(got)]
    done = subprocess.run(command, capture_output=True, text=True, env=QUIET, check=False)
    if "unexpected memory mapping" in done.stderr:
        # Some kernels of Linux place memory where this libtsan does not expect it.
        done = subprocess.run(
            ["setarch", "-R", *command], capture_output=True, text=True, env=QUIET, check=False
        )
    made = sum(buffer.nbytes for buffer in buffers[-len(launched.outputs) :])
    return done.returncode, done.stderr, got.read_bytes()[-made:] if got.exists() else b""


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("case", CHECKED, ids=lambda case: case.name)
def test_a_kernel_is_clean(
    case: Case, sanitizer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inputs = case.make(2, mx.float32)
    with recorded(monkeypatch) as launches:
        case.run(*inputs)
    (launched,) = launches
    status, said, made = run(launched, sanitizer, tmp_path)
    assert (status, said) == (0, "")
    with use_backend("cpu"):
        expected = np.array(case.run(*inputs))
    # The first output is compared; the cases show a dead slot as -1e9.
    kept = expected[..., : launched.outputs[0][0][-1]]
    found = np.frombuffer(made, launched.made[0], kept.size).reshape(kept.shape).astype(np.float32)
    np.testing.assert_array_equal(np.maximum(found, -1e9), kept)


# Rows are summed through threadgroup memory: what the fused kernels do not need, the search's will.
ROW_SUMS = Kernel(
    "row_sums",
    ("x",),
    ("y",),
    """threadgroup float part[NSG];
const int lane = int(thread_index_in_simdgroup);
const int sg = int(simdgroup_index_in_threadgroup);
const int row = int(threadgroup_position_in_grid.x);
auto from = x + row * 32 * NSG;
float v = float(from[sg * 32 + lane]);
v = simd_sum(v);
if (lane == 0) part[sg] = v;
threadgroup_barrier(mem_flags::mem_threadgroup);
if (sg == 0 && lane == 0) {
  float sum = 0.0f;
  for (int i = 0; i < NSG; i++) sum += part[i];
  y[row] = sum;
}
""",
    "",
)
SEEDED = {
    "a barrier left out": ("thread", "threadgroup_barrier(mem_flags::mem_threadgroup);\n", "", "data race"),
    "two lanes write one place": (
        "thread",
        "if (lane == 0) part[sg] = v;",
        "if (lane < 2) part[sg] = v;",
        "data race",
    ),
    "one row too far": (
        "address",
        "auto from = x + row",
        "auto from = x + (row + 1)",
        "heap-buffer-overflow",
    ),
    "a simd operation under a branch": (
        "address",
        "v = simd_sum(v);",
        "if (lane < 16) v = simd_sum(v);",
        "lanes wait at different barriers or simd operations",
    ),
    "a barrier under a branch": (
        "address",
        "if (sg == 0 && lane == 0) {",
        "if (sg == 0) threadgroup_barrier(mem_flags::mem_threadgroup);\nif (sg == 0 && lane == 0) {",
        "a lane returned while others",
    ),
}


def _row_sums(body: str) -> Launched:
    x = mx.arange(2 * 4 * 32, dtype=mx.float32).reshape(2, 128)
    return Launched(
        replace(ROW_SUMS, body=body), [x], [((2,), mx.float32)], (("NSG", 4),), 2 * 4 * 32, 4 * 32
    )


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_the_seedling_itself_is_clean(sanitizer: str, tmp_path: Path) -> None:
    status, said, made = run(_row_sums(ROW_SUMS.body), sanitizer, tmp_path)
    assert (status, said) == (0, "")
    np.testing.assert_array_equal(np.frombuffer(made, np.float32), [8128.0, 24512.0])


@pytest.mark.parametrize("seeded", SEEDED)
def test_a_seeded_bug_is_found(seeded: str, tmp_path: Path) -> None:
    sanitizer, before, after, expected = SEEDED[seeded]
    assert before in ROW_SUMS.body
    status, said, _ = run(_row_sums(ROW_SUMS.body.replace(before, after)), sanitizer, tmp_path)
    assert status != 0
    assert expected in said
