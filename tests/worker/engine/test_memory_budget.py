"""How large a batch a machine's memory allows."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from spool.settings import FRAME_BUDGET, LONGEST_CHUNK_FRAMES, MAX_BATCH, Settings
from worker.engine import budget_of
from worker.engine.memory_budget import memory_budget
from worker.machine import Hardware, this_machine

GIB = 2**30
MAC = replace(this_machine(), chip="Apple M4", memory=16 * GIB, apple_gpu=True)
LINUX = replace(MAC, chip="a CPU", apple_gpu=False)


def mac(gib: float, **given: int) -> "tuple[float, float]":
    budget = memory_budget(replace(MAC, memory=int(gib * GIB)), **given)
    return round(budget.device / GIB, 2), round(budget.batch / GIB, 2)


def test_macs_by_their_memory() -> None:
    assert mac(8) == (5.33, 1.67)
    assert mac(16) == (10.67, 3.33)
    assert mac(36) == (24.0, 7.5)
    assert mac(64) == (48.0, 16.0)


def test_a_wired_limit_wins() -> None:
    assert mac(8, limit=4 * GIB) == (4.0, 1.0)
    assert mac(8, limit=7 * GIB) == (7.0, 2.5)


def test_what_is_set_by_hand_stands() -> None:
    budget = memory_budget(replace(MAC, memory=8 * GIB))
    assert (budget.frames, budget.utterances) == (FRAME_BUDGET, MAX_BATCH)
    budget = memory_budget(replace(MAC, memory=8 * GIB), frames=100_000, utterances=200)
    assert (budget.frames, budget.utterances) == (100_000, 200)


def test_a_container_has_what_it_is_given() -> None:
    large: Hardware = replace(LINUX, memory=256 * GIB)
    budget = memory_budget(large, 3 * GIB)
    assert (budget.device, budget.models) == (int(2.25 * GIB), int(0.75 * GIB))
    assert budget.batch == int(0.75 * GIB)
    assert memory_budget(replace(LINUX, memory=2 * GIB), 1 << 62).device == int(1.5 * GIB)


def test_this_machine_has_a_budget(make_settings: Callable[..., Settings]) -> None:
    budget = budget_of(make_settings(), this_machine())
    assert 0 < budget.batch < budget.device
    assert "GiB for the engine" in str(budget)


@pytest.mark.parametrize("frames", [LONGEST_CHUNK_FRAMES, FRAME_BUDGET])
def test_the_settings_reach_the_batches(make_settings: Callable[..., Settings], frames: int) -> None:
    from worker.engine import engine_options

    limits = engine_options(make_settings(frame_budget=frames, max_batch=7)).limits
    assert (limits.samples, limits.utterances) == (frames * 160, 7)
