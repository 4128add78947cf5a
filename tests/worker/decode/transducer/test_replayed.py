"""A beam whose steps are repeated without Python, against the same beam step by step: every bit the same."""

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest

from kernels.runtime import use_backend
from kernels.search import expand
from spool.domain import Hypothesis
from tests.worker.decode.reference import random_frames, tiny_transducer
from worker.decode import LatticeRecorder, Record, beam_search
from worker.decode.transducer import beam, replayed
from worker.models import giving_way_to

LENGTHS = [23, 0, 9, 40, 1]


@pytest.fixture(autouse=True)
def _on_cpu() -> Iterator[None]:
    with use_backend("cpu"):
        yield


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps were shown at a time, of all searches."""
    shown: list[int] = []
    show = replayed._report_steps

    def count(*given: object) -> object:
        shown.append(len(given[2]))  # type: ignore[arg-type]
        return show(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(replayed, "_report_steps", count)
    return shown


def found(
    durations: tuple[int, ...], layers: int, *, fixed: bool
) -> tuple[list[list[Hypothesis]], list[Record]]:
    transducer, recorder = tiny_transducer(4, 9, durations, layers), LatticeRecorder()
    frames = random_frames(4, LENGTHS)
    lists = beam_search(transducer, frames, np.array(LENGTHS), 4, 10, None, recorder, fixed=fixed)
    return lists, recorder.records()


def step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayed.ReplayedBeam, "run", lambda *_: None)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)], ids=["rnnt", "tdt"])
def test_repeated_steps_find_and_record_what_single_ones_do(
    durations: tuple[int, ...],
    layers: int,
    fixed: bool,
    repeated: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists, records = found(durations, layers, fixed=fixed)
    assert max(repeated) == replayed.BLOCK
    with monkeypatch.context() as patch:
        step_by_step(patch)
        expected, kept = found(durations, layers, fixed=fixed)
    assert lists == expected
    for one, other in zip(records, kept, strict=True):
        # Steps in which nothing of the batch moves may stand at the end of the one or the other.
        many = min(len(one.labels), len(other.labels))
        assert abs(len(one.labels) - len(other.labels)) < 2
        for name in ("labels", "frames", "durations", "parents", "gained", "scores"):
            np.testing.assert_array_equal(getattr(one, name)[:many], getattr(other, name)[:many], name)
        np.testing.assert_array_equal(one.ends, other.ends)


def test_a_search_takes_over_where_the_room_of_the_last_ends(
    repeated: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = found((), 1, fixed=False)[0]
    at_once = len(repeated)
    monkeypatch.setattr(beam, "REPLAYED_STEPS", 6)
    assert found((), 1, fixed=False)[0] == expected
    assert len(repeated) - at_once > 2 * at_once


def test_a_beam_that_no_kernel_expands_goes_step_by_step(
    repeated: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = found((), 1, fixed=False)[0]
    repeated.clear()
    monkeypatch.setattr(expand, "_CANDIDATE_BYTES", 0)
    lists = found((), 1, fixed=False)[0]
    assert repeated == []
    assert [[h.tokens for h in row] for row in lists] == [[h.tokens for h in row] for row in expected]


def test_others_come_between_repeated_steps(repeated: list[int]) -> None:
    class Others:
        may_come = True
        turns = 0

        def take_turn(self) -> None:
            self.turns += 1
            mx.eval(mx.zeros(3) + self.turns)

    others = Others()
    expected = found((), 1, fixed=False)[0]
    with giving_way_to(others):
        assert found((), 1, fixed=False)[0] == expected
    assert others.turns == len(repeated) // 2
