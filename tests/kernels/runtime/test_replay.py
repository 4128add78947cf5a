"""Steps recorded and repeated: the bits of steps made one by one, and no repeating of anything else."""

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np
import pytest

from kernels.contracts.case import normal
from kernels.nn import residual_norm, silu
from kernels.runtime import Kernel, launch, use_backend
from kernels.runtime.replay import record

COUNT_DOWN = Kernel("count_down", ("left",), ("after",), "after[0] = left[0] - 1;", "")
WEIGHT, BIAS = normal(40, seed=1), normal(40, seed=2)
State = Sequence[mx.array]
X, TOTAL, LEFT = range(3)
KEPT = [3, 1, 1]


def step(state: State) -> list[mx.array]:
    """The second array is the first and its activation, the first is the norm of that."""
    total, normed = residual_norm(state[X], silu(state[X]), WEIGHT, BIAS, half=False)
    (left,) = launch(COUNT_DOWN, [state[LEFT]], [((1,), mx.int32)], groups=1) or []
    return [normed, total, left]


def begin(left: int) -> State:
    return [normal(5, 40), normal(5, 40, seed=9), mx.array([left], mx.int32)]


def one_by_one(steps: int) -> list[np.ndarray]:
    state, reached = begin(100), []
    for _ in range(steps):
        state = step(state)
        reached.append(np.array(state[X]))
    return reached


@pytest.fixture(autouse=True)
def _on_cpu() -> object:
    with use_backend("cpu"):
        yield


def test_repeated_steps_have_the_bits_of_steps_one_by_one() -> None:
    expected = one_by_one(12)
    once, twice, replay = record(step, begin(100), KEPT, LEFT)
    assert replay is not None
    assert (np.array(once[X]) == expected[0]).all()
    assert (np.array(twice[X]) == expected[1]).all()
    assert replay.run(3) == 3
    assert (replay.latest(X, 3) == expected[2:5]).all()
    assert replay.run(7) == 7
    assert (replay.latest(X, 3) == expected[9:12]).all(), "the last of them, the oldest first"
    assert replay.latest(LEFT).tolist() == [[88]]


def test_steps_end_where_no_further_one_is_wanted() -> None:
    _, _, replay = record(step, begin(6), KEPT, LEFT)
    assert replay is not None
    assert replay.run(50) == 4
    assert replay.latest(LEFT).tolist() == [[0]]
    assert (replay.latest(X)[0] == one_by_one(6)[-1]).all()


def with_an_operation_between(state: State) -> list[mx.array]:
    return step([state[X] * 1.5, *state[1:]])


def with_an_operation_behind(state: State) -> list[mx.array]:
    normed, total, left = step(state)
    return [normed + 1, total, left]


def with_a_number_that_grows(calls: list[mx.array]) -> Callable[[State], list[mx.array]]:
    def grow(state: State) -> list[mx.array]:
        calls.append(mx.full((40,), float(len(calls))))
        total, normed = residual_norm(state[X], silu(state[X]), calls[-1], BIAS, half=False)
        return [normed, total, step(state)[LEFT]]

    return grow


@pytest.mark.parametrize(
    "other", [with_an_operation_between, with_an_operation_behind, with_a_number_that_grows([])]
)
def test_a_step_that_is_more_than_kernels_is_not_repeated(other: Callable[[State], list[mx.array]]) -> None:
    once, twice, replay = record(other, begin(100), KEPT, LEFT)
    assert replay is None
    assert [each.shape for each in once] == [each.shape for each in twice]


def test_without_kernels_nothing_is_repeated() -> None:
    def plain(state: State) -> list[mx.array]:
        with use_backend("reference"):
            total, normed = residual_norm(state[X], silu(state[X]), WEIGHT, BIAS, half=False)
        return [normed, total, state[LEFT] - 1]

    assert record(plain, begin(100), KEPT, LEFT)[2] is None
