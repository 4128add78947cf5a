"""The one place that chooses how a kernel runs, and runs it. The backends:

    metal      an Apple GPU, through `mx.fast.metal_kernel`
    cpu        this CPU, one lane per simdgroup: compiled on first use (build_cpu.py), over MLX's own buffers
    fibers     this CPU, 32 lanes that synchronize as on a GPU: slow, for tests
    cuda       an NVIDIA GPU, through `mx.fast.cuda_kernel`
    reference  no kernel: the caller's plain-MLX form

`SPOOL_KERNELS` names one of them and is read once. Unset or `auto`, it means metal or cuda where MLX's
default device is a GPU, cpu where a compiler is available, and reference otherwise. `use_backend` overrides
it in tests.

Under `auto`, a kernel that fails to build is replaced by its reference with a warning: a worker with a broken
compiler is slow, not down. If the backend was requested by name, the failure is raised.

On the CPU a launch waits for its inputs (MLX is lazy, a compiled function is not) and cannot be traced by
`mx.compile`. Results do not depend on the number of threads: `SPOOL_KERNEL_THREADS`, by default one per core.
"""

import contextlib
import ctypes
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import mlx.core as mx
import numpy as np

from kernels.runtime.build_cpu import (
    CHECK_FLAGS,
    FAST_FLAGS,
    BuildFailed,
    Launch,
    build_library,
    cache_folder,
    compiler,
    load_launch,
)
from kernels.runtime.source import CPU_HEADER, Argument, Kernel, Template, cpu_text, cuda_body, cuda_header

Result = TypeVar("Result")


class Backend(StrEnum):
    """How kernels run; the module's docstring describes each."""

    METAL = "metal"
    CPU = "cpu"
    FIBERS = "fibers"
    CUDA = "cuda"
    REFERENCE = "reference"


@cache
def read_backend() -> Backend | None:
    """The backend that `SPOOL_KERNELS` names, None for `auto` or unset; read once. Else raises ValueError."""
    named = os.environ.get("SPOOL_KERNELS", "auto").strip().lower()
    if named in {"", "auto"}:
        return None
    if named not in {*Backend}:
        raise ValueError(f"SPOOL_KERNELS is {named!r}: it must be auto, {', '.join(Backend)}")
    return Backend(named)


_log = logging.getLogger(__name__)

# Below this many bytes moved, waking a thread costs more than it saves.
_BYTES_WORTH_A_THREAD = 1 << 18
# Up to this many bytes, MLX copies numpy's memory in a fifth of the time it takes to allocate its own.
_BYTES_SOONER_COPIED = 1 << 18
_NUMPY = {mx.float32: np.float32, mx.int32: np.int32, mx.bool_: np.bool_}
# Kernels index with 32 bits.
_LARGEST = 2**31

Output = tuple[tuple[int, ...], mx.Dtype]


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch on a CPU. buffers: in the kernel's order; those at the indices `shapes` hold shapes and
    strides. outputs: the buffers it wrote."""

    library: Path
    buffers: list[np.ndarray[Any, Any]]
    shapes: frozenset[int]
    outputs: list[np.ndarray[Any, Any]]
    grid: tuple[int, int, int]
    group: tuple[int, int, int]
    threads: int


_recorded: ContextVar[list[Launched] | None] = ContextVar("recorded launches", default=None)
_override: ContextVar[Backend | None] = ContextVar("kernel backend", default=None)
_given_up: dict[str, str] = {}


def threads_for(moved: int) -> int:
    """The number of threads for a launch that moves this many bytes."""
    most = _threads()
    return most if moved >= _BYTES_WORTH_A_THREAD else 1


@cache
def _threads() -> int:
    named = os.environ.get("SPOOL_KERNEL_THREADS", "")
    if named:
        if not named.isdigit() or int(named) < 1:
            raise ValueError(f"SPOOL_KERNEL_THREADS is {named!r}: it must be a number of at least 1")
        return int(named)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def backend() -> Backend:
    """The backend the next launch uses."""
    forced = _override.get() or read_backend()
    if forced is not None:
        return forced
    if mx.default_device().type == mx.DeviceType.gpu:
        return Backend.METAL if mx.metal.is_available() else Backend.CUDA
    return Backend.CPU if compiler() else Backend.REFERENCE


def compiles_for_cpu() -> bool:
    """Whether kernels run as compiled functions on this CPU, where they also beat MLX's own operations."""
    return backend() in {Backend.CPU, Backend.FIBERS}


def on_gpu() -> bool:
    """Whether arrays are computed by a GPU, where one large operation beats many small ones."""
    return backend() in {Backend.METAL, Backend.CUDA} or mx.default_device().type == mx.DeviceType.gpu


def fuse(function: Callable[..., Result]) -> Callable[..., Result]:
    """`function` of arrays, compiled by `mx.compile` on a GPU, which fuses elementwise operations into one
    launch; unchanged on a CPU, where compiling costs time at run time. It must not launch our kernels."""
    compiled = cast("Callable[..., Result]", mx.compile(function))

    @wraps(function)
    def run(*arrays: Any) -> Result:  # noqa: ANN401 - arrays, and tuples of them
        return (compiled if on_gpu() else function)(*arrays)

    return run


@contextlib.contextmanager
def use_backend(name: Backend | str) -> Iterator[None]:
    """Within the block, launches of this thread use this backend; failures to build are raised."""
    token = _override.set(Backend(name))
    try:
        yield
    finally:
        _override.reset(token)


@contextlib.contextmanager
def record_launches() -> Iterator[list[Launched]]:
    """Within the block, launches of this thread on a CPU are recorded in the list."""
    launches: list[Launched] = []
    token = _recorded.set(launches)
    try:
        yield launches
    finally:
        _recorded.reset(token)


def kernel_status() -> list[str]:
    """Lines for `spool-worker check`: the backend, the compiler, and the kernels that failed to build."""
    chosen = backend()
    toolchain = compiler()
    lines = [f"kernels: {chosen}"]
    if compiles_for_cpu() and toolchain:
        lines.append(f"kernel compiler: {toolchain[1]} ({toolchain[0]})")
        lines.append(f"kernel cache: {cache_folder()}")
    elif chosen is Backend.REFERENCE and toolchain is None:
        lines.append("kernel compiler: none found, plain MLX runs instead, several times slower on this CPU")
    lines += [f"kernel {name} runs as plain MLX: {why}" for name, why in sorted(_given_up.items())]
    return lines


def launch(
    kernel: Kernel,
    inputs: Sequence[mx.array],
    outputs: Sequence[Output],
    *,
    groups: int,
    simdgroups: int = 1,
    template: Template = (),
) -> list[mx.array] | None:
    """Run `groups` threadgroups of `simdgroups` simdgroups. None: the caller must run its reference.

    The body has the number of simdgroups as the constant NSG (1 in the one-lane build). Outputs are
    uninitialised before the kernel writes them. Inputs must have at least one dimension.
    """
    chosen = backend()
    sizes = [each.size for each in inputs] + [math.prod(shape) for shape, _ in outputs]
    if chosen is Backend.REFERENCE or max(sizes) >= _LARGEST or kernel.name in _given_up:
        return None
    if groups == 0:
        return [mx.zeros(shape, dtype) for shape, dtype in outputs]
    if chosen in {Backend.METAL, Backend.CUDA}:
        template = (*template, ("NSG", simdgroups))
        return _launch_on_gpu(kernel, chosen, inputs, outputs, groups * simdgroups, simdgroups, template)
    try:
        return _launch_on_cpu(kernel, chosen, inputs, outputs, groups, simdgroups, template)
    except BuildFailed as failure:
        if _override.get() or read_backend():
            raise
        _given_up[kernel.name] = str(failure)
        _log.warning("kernel %s runs as plain MLX: %s", kernel.name, failure)
        return None


def launch_rows(
    kernel: Kernel,
    inputs: Sequence[mx.array],
    outputs: Sequence[Output],
    *,
    rows: int,
    template: Template = (),
) -> list[mx.array] | None:
    """As `launch`, for a kernel in which each simdgroup takes a row; on a GPU several share a group."""
    simdgroups = 1 if backend() is Backend.CPU else 4
    groups = (rows + simdgroups - 1) // simdgroups
    return launch(kernel, inputs, outputs, groups=groups, simdgroups=simdgroups, template=template)


def _launch_on_gpu(
    kernel: Kernel,
    chosen: Backend,
    inputs: Sequence[mx.array],
    outputs: Sequence[Output],
    total: int,
    simdgroups: int,
    template: Template,
) -> list[mx.array]:
    call = _metal_kernel(kernel) if chosen is Backend.METAL else _cuda_kernel(kernel)
    results = call(
        inputs=list(inputs),
        template=[(key, getattr(mx, value) if isinstance(value, str) else value) for key, value in template],
        grid=(32 * total, 1, 1),
        threadgroup=(32 * simdgroups, 1, 1),
        output_shapes=[shape for shape, _ in outputs],
        output_dtypes=[dtype for _, dtype in outputs],
    )
    return list(results)


@cache
def _metal_kernel(kernel: Kernel) -> Callable[..., Any]:
    compiled = mx.fast.metal_kernel(kernel.name, kernel.inputs, kernel.outputs, kernel.body, kernel.header)
    return cast("Callable[..., Any]", compiled)


@cache
def _cuda_kernel(kernel: Kernel) -> Callable[..., Any]:
    source, header = cuda_body(kernel), cuda_header(kernel)
    compiled = mx.fast.cuda_kernel(kernel.name, kernel.inputs, kernel.outputs, source, header)
    return cast("Callable[..., Any]", compiled)


@cache
def dtype_name(dtype: mx.Dtype) -> str:
    """`float32` for `mx.float32`: the name that templates and sources use."""
    return str(dtype).rpartition(".")[2].removesuffix("_")


@cache
def _compile_kernel(
    kernel: Kernel, dtypes: tuple[str, ...], outputs: tuple[str, ...], template: Template, width: int
) -> tuple[Launch, Path]:
    arguments = [Argument(dtype, (1,)) for dtype in dtypes]
    source = cpu_text(kernel, arguments, list(outputs), template)
    flags = (*(FAST_FLAGS if width == 1 else CHECK_FLAGS), f"-DSIMD_W={width}")
    name = kernel.name if width == 1 else f"{kernel.name}-fibers"
    library = build_library(name, source, flags, CPU_HEADER)
    return load_launch(library), library


def buffer_of(array: mx.array) -> np.ndarray[Any, Any]:
    """The memory of an evaluated array, row contiguous; bfloat16, which numpy lacks, as its bits."""
    view = np.asarray(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)
    return view if view.flags.c_contiguous else np.ascontiguousarray(view)


@cache
def _list_wants(kernel: Kernel) -> list[tuple[bool, bool, bool]]:
    return [kernel.wants(name) for name in kernel.inputs]


def fresh_array(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """An uninitialised MLX array that no one else holds, so it can be written in place."""
    if dtype in _NUMPY and math.prod(shape) * dtype.size <= _BYTES_SOONER_COPIED:
        return mx.array(np.empty(shape, _NUMPY[dtype]))
    return mx.empty(shape, dtype)


def _launch_on_cpu(
    kernel: Kernel,
    chosen: Backend,
    inputs: Sequence[mx.array],
    outputs: Sequence[Output],
    groups: int,
    simdgroups: int,
    template: Template,
) -> list[mx.array]:
    width = 1 if chosen is Backend.CPU else 32
    simdgroups = simdgroups if width == 32 else 1
    run, library = _compile_kernel(
        kernel,
        tuple(dtype_name(each.dtype) for each in inputs),
        tuple(dtype_name(dtype) for _, dtype in outputs),
        (*template, ("NSG", simdgroups)),
        width,
    )
    results = [fresh_array(shape, dtype) for shape, dtype in outputs]
    mx.eval(*inputs, *results)
    buffers: list[np.ndarray[Any, Any]] = []
    of_shapes: list[int] = []
    for (shape, strides, rank), array in zip(_list_wants(kernel), inputs, strict=True):
        view = buffer_of(array)
        buffers.append(view)
        of_shapes += range(len(buffers), len(buffers) + shape + strides + rank)
        if shape:
            buffers.append(np.array(view.shape, np.int32))
        if strides:
            buffers.append(np.array([stride // view.itemsize for stride in view.strides], np.int64))
        if rank:
            buffers.append(np.array([view.ndim], np.int32))
    moved = sum(buffer.nbytes for buffer in buffers)
    outputs_of = [buffer_of(array) for array in results]
    buffers += outputs_of
    threads = threads_for(moved)
    grid, group = (groups * simdgroups * width, 1, 1), (simdgroups * width, 1, 1)
    addresses = [buffer.__array_interface__["data"][0] for buffer in buffers]
    run(
        (ctypes.c_void_p * len(addresses))(*addresses),
        (ctypes.c_uint * 3)(*grid),
        (ctypes.c_uint * 3)(*group),
        threads,
    )
    recorded = _recorded.get()
    if recorded is not None:
        recorded.append(Launched(library, buffers, frozenset(of_shapes), outputs_of, grid, group, threads))
    return results
