"""What the tests of kernels share: which backend they try, the contracts, and what an operation launches."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import mlx.core as mx
import pytest

from kernels.contracts.case import DTYPES, Case, lengths_of, normal, same_bits
from kernels.contracts.nn import CASES
from kernels.contracts.search import SETTLED, arcs_of, recombine_inputs
from kernels.runtime import device
from kernels.runtime.source import Argument, Kernel, Template

__all__ = [
    "CASES",
    "DTYPES",
    "SETTLED",
    "TESTED",
    "Case",
    "Launched",
    "arcs_of",
    "every_case",
    "lengths_of",
    "normal",
    "recombine_inputs",
    "recorded",
    "same_bits",
]

# What is held against the references: the CPU's build, or on a Mac, by hand, metal (docs/on-a-mac.md).
TESTED = os.environ.get("SPOOL_TEST_BACKEND", "cpu")

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


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
