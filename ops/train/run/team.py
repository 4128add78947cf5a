"""Processes that train one network together: each hears batches of its own, and all take the same steps.

The gradients of a step are averaged (synchronous data parallelism), so that a step of n processes is one
of a batch n times as large. Knows processes and vectors; knows no network and no batch.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.multiprocessing.spawn import spawn

T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """One of `size` processes; by default the only one."""

    rank: int = 0
    size: int = 1

    def mean(self, numbers: Sequence[float]) -> list[float]:
        """Of each number, the mean over the processes."""
        if self.size == 1:
            return list(numbers)
        vector = torch.tensor(numbers, dtype=torch.float64)
        distributed.all_reduce(vector)
        return (vector / self.size).tolist()

    def gathered(self, own: T) -> list[T]:
        """What each process has, in the order of their ranks."""
        if self.size == 1:
            return [own]
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, own)
        return found

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replaces every gradient by its mean over the processes."""
        if self.size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in gradients])
        distributed.all_reduce(flat)
        flat /= self.size
        parts = flat.split([g.numel() for g in gradients])
        torch._foreach_copy_(gradients, [p.view_as(g) for p, g in zip(parts, gradients, strict=True)])


def together(size: int, work: Callable[..., None], given: tuple[Any, ...]) -> None:
    """Calls `work(team, stop, *given)` in that many processes and waits. SIGINT and SIGTERM set `stop`.

    An exception in one ends the others and is raised here.
    """
    stop = torch.multiprocessing.get_context("spawn").Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if size == 1:
        work(Team(), stop, *given)
        return
    with tempfile.TemporaryDirectory() as folder:
        spawn(_member, (size, Path(folder) / "meeting", stop, work, given), size)


def _member(
    rank: int, size: int, meeting: Path, stop: Event, work: Callable[..., None], given: tuple[Any, ...]
) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    work(
        Team(rank, size), stop, *given
    )  # what it raises is told before the others lose their connection to it
    with suppress(RuntimeError):  # another's failure, raised there
        distributed.barrier()  # a connection that is cut while a process ends aborts it at times
    distributed.destroy_process_group()
