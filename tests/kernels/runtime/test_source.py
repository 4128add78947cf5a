"""Our wrapper's text is MLX's own, so what the CPU runs and clang checks is what an Apple GPU gets.

It rests on an internal of MLX (inside `mx.export_function` a metal_kernel prints its source on any machine):
a new MLX that words it differently fails here, and text.py is to follow it.
"""

import ctypes
import importlib.metadata
import os
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import pytest

from kernels.contracts import DTYPES, Case
from kernels.runtime import Argument, Kernel, Template, cuda_text, device, metal_text
from ops.testbed.kernel_cases import Launched, every_case, recorded

ALL_FEATURES = Kernel(
    "all_features",
    ("many", "few", "one", "flags"),
    ("made",),
    "threadgroup float kept[N];\nuint e = thread_position_in_grid.x; kept[0] = 0;\n"
    "made[e] = T(many[e]) + many_shape[0] + many_strides[0] + many_ndim + few_shape[0] + one + flags[e] + N"
    " + (F ? 1 : 0) + thread_index_in_simdgroup;",
    "inline int twice(int v) { return 2 * v; }\n",
)


def text_of_mlx(launched: Launched, folder: Path) -> str:
    """What MLX prints for a call; it writes to the file descriptor, below Python."""
    run = device._metal_kernel(launched.kernel)
    template = [
        (key, getattr(mx, value) if isinstance(value, str) else value) for key, value in launched.template
    ]

    def call(*inputs: mx.array) -> list[mx.array]:
        return run(
            inputs=list(inputs),
            template=template,
            grid=(launched.threads, 1, 1),
            threadgroup=(launched.threads_a_group, 1, 1),
            output_shapes=[shape for shape, _ in launched.outputs],
            output_dtypes=[dtype for _, dtype in launched.outputs],
            verbose=True,
        )

    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 1)
        try:
            mx.export_function(str(folder / "call.mlxfn"), call, *launched.inputs)
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
        captured.seek(0)
        printed = captured.read().decode()
    return printed[printed.index("```\n") + 4 : printed.rindex("\n```")]


def test_mlx_is_the_version_the_text_was_read_from() -> None:
    assert importlib.metadata.version("mlx").startswith("0.32.")


@every_case
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 9])
def test_a_kernel_has_the_words_of_mlx(
    case: Case, dtype: str, batch: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with recorded(monkeypatch) as launches:
        case.run(*case.make(batch, DTYPES[dtype]))
    assert launches
    for each in launches:
        _, ours = metal_text(each.kernel, each.arguments, each.made, each.template)
        assert ours.strip() == text_of_mlx(each, tmp_path).strip()


@pytest.mark.parametrize("dtype", ["uint32", "int64", "uint8", "int32", "int8", "uint16", "int16", "uint64"])
def test_every_feature_of_the_wrapper_has_the_words_of_mlx(dtype: str, tmp_path: Path) -> None:
    """Scalars, fewer than 8 elements, shapes, strides, ranks, every kind of template argument."""
    template: Template = (("T", "float32"), ("N", 3), ("F", True))
    many, few = mx.zeros((4, 8), getattr(mx, dtype)), mx.zeros((3,))
    inputs = [many, few, mx.array(1.0), mx.zeros((32,), mx.bool_)]
    each = Launched(ALL_FEATURES, inputs, [((32,), mx.float32)], template, 32, 32)
    _, ours = metal_text(ALL_FEATURES, each.arguments, each.made, template)
    assert ours.strip() == text_of_mlx(each, tmp_path).strip()


def test_cuda_gets_constants_and_shared_memory() -> None:
    arguments = [
        Argument("float32", (4, 8)),
        Argument("float32", (3,)),
        Argument("float32", (1,)),
        Argument("bool", (32,)),
    ]
    name, text = cuda_text(ALL_FEATURES, arguments, ["float32"], (("T", "bfloat16"), ("N", 3), ("F", True)))
    assert name == "custom_kernel_all_features_bfloat16_3_t"
    for expected in (
        "using T = __nv_bfloat16;",
        "constexpr int N = 3;",
        "constexpr bool F = true;",
        "const __grid_constant__ Strides many_strides",
        "inline int twice",
    ):
        assert expected in text
    assert "__shared__ float kept[N];" in text
