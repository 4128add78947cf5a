"""The prediction step for some rows: both ways give one answer, and rows that need none keep theirs."""

from functools import partial
from typing import cast

import mlx.core as mx
import numpy as np
import pytest

from kernels.nn import RowSteps
from kernels.search import FINISHED, FORCED, Field, Limits, empty_beam
from kernels.search.expand import RUNS
from tests.worker.decode.reference import random_frames, tiny_transducer
from worker.decode import advance, beam_search, greedy_search, joint_logits, reorder
from worker.decode.transducer import beam, greedy
from worker.models import LstmState, Transducer


@pytest.mark.parametrize("needed", [[True, False, True, False], [False] * 4, [True] * 4])
def test_both_ways_step_the_rows_that_need_it(needed: list[bool]) -> None:
    transducer = tiny_transducer(0, 9)
    output, state = transducer.start(4)
    before = np.array(output)
    labels, mask = mx.array([3, -1, 5, 2]), mx.array(needed)
    labels = mx.where(mask, mx.maximum(labels, 0), labels)

    gathered = advance(transducer, labels, mask, output, state, gather=True)
    masked = advance(transducer, labels, mask, output, state, gather=False)

    stepped = transducer.step(mx.maximum(labels, 0), state)
    for found in (gathered, masked):
        assert np.array(found[0]) == pytest.approx(
            np.where(np.array(needed)[:, None], np.array(stepped[0]), np.array(output)), abs=1e-6
        )
        for kept, fresh, old in zip(found[1], stepped[1], state, strict=True):
            expected = np.where(np.array(needed)[:, None, None], np.array(fresh), np.array(old))
            assert np.array(kept) == pytest.approx(expected, abs=1e-6)
    assert (np.array(output) == before).all()


class Counting:
    """A transducer that notes how many rows it steps, and of how many parents it makes the product."""

    def __init__(self, transducer: Transducer) -> None:
        self._transducer = transducer
        self.stepped: list[tuple[int, int]] = []

    def step(
        self, tokens: mx.array, state: LstmState, of: mx.array | None = None
    ) -> tuple[mx.array, LstmState]:
        self.stepped.append((len(tokens), len(state.hidden)))
        return self._transducer.step(tokens, state, of)

    def go_on(
        self, rows: RowSteps, output: mx.array, layers: list[LstmState]
    ) -> tuple[mx.array, list[LstmState]]:
        made, read = np.array(rows.first.products[0]), np.array(rows.first.rows[1])
        self.stepped.append((int((read >= 0).sum()), int((made >= 0).sum())))
        return self._transducer.go_on(rows, output, layers)


def slots_of(labels: list[int], parents: list[int], origins: list[int]) -> mx.array:
    fields = np.zeros((len(Field), 1, len(labels)), np.int32)
    fields[Field.LABEL, 0], fields[Field.PARENT, 0], fields[Field.ORIGIN, 0] = labels, parents, origins
    return mx.array(fields)


@pytest.mark.parametrize("gather", [True, False])
def test_a_parents_product_is_made_once(gather: bool) -> None:
    # Slots 0 and 1 are one prefix at two frames; 2 has another parent's label, 3 another label of that
    # parent, 4 goes on with a row that is there, 5 takes the row that slot 4 has.
    counting = Counting(tiny_transducer(0, 9))
    output, state = counting._transducer.start(6)
    output, state = counting._transducer.step(mx.arange(6), state)
    slots = slots_of([3, 3, 5, 6, -1, 8], [1, 1, 2, 2, 4, 0], [6, 6, 8, 9, 4, 4])

    found, after = reorder(cast("Transducer", counting), slots, output, state, gather=gather)

    assert counting.stepped == ([(4, 2)] if gather else [(6, 6)])
    read, states = counting._transducer.step(mx.array([3, 5, 6]), state.take(mx.array([1, 2, 2])))
    for one, fresh, old in ((found, read, output), *zip(after, states, state, strict=True)):
        expected = np.array(fresh)[[0, 0, 1, 2, 0, 0]]
        expected[4:] = np.array(old)[4]
        assert np.array(one) == pytest.approx(expected, abs=1e-6)


def test_where_nobody_reads_rows_only_change_places() -> None:
    counting = Counting(tiny_transducer(0, 9))
    output, state = counting._transducer.step(mx.arange(3), counting._transducer.start(3)[1])

    found, after = reorder(
        cast("Transducer", counting), slots_of([-1, -1, 4], [2, 0, 0], [2, 0, 0]), output, state, gather=True
    )

    assert counting.stepped == [(0, 0)]
    assert (np.array(found) == np.array(output)[[2, 0, 0]]).all()
    assert (np.array(after.cell) == np.array(state.cell)[[2, 0, 0]]).all()


@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)])
def test_searches_find_the_same_either_way(
    durations: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    transducer, lengths = tiny_transducer(3, 9, durations), [14, 5, 9]
    frames = random_frames(3, lengths)
    found = []
    for gather in (True, False):
        monkeypatch.setattr(beam, "reorder", partial(reorder, gather=gather))
        monkeypatch.setattr(greedy, "advance", partial(advance, gather=gather))
        found.append(
            beam_search(transducer, frames, np.array(lengths), 4, 10)
            + greedy_search(transducer, frames, np.array(lengths), 10)
        )

    for one, other in zip(*found, strict=True):
        assert [(h.tokens, h.times, h.durations) for h in one] == [
            (h.tokens, h.times, h.durations) for h in other
        ]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4), (2, 7)])
def test_greedy_finds_the_same_through_any_window(
    durations: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    transducer, lengths = tiny_transducer(5, 9, durations), [23, 8, 0, 16]
    frames = random_frames(5, lengths)
    found = []
    for window in (1, 2, 3, 8, 40):
        monkeypatch.setattr(greedy, "WINDOW", window)
        rows = greedy_search(transducer, frames, np.array(lengths), 10)
        found.append([(h[0].tokens, h[0].times, h[0].durations) for h in rows])

    assert all(one == found[0] for one in found)


def test_the_joint_of_slots_that_run_is_the_same_both_ways() -> None:
    # Given a beam of 2 utterances, one slot dead, one past its end, and all of another finished
    transducer = tiny_transducer(0, 9)
    encoder = mx.random.normal((8, transducer.start(1)[0].shape[1]), key=mx.random.key(2))
    output = mx.random.normal((8, encoder.shape[1]), key=mx.random.key(3))
    beam = empty_beam(2, 4, 8, Limits(mx.array([4, 4]), mx.array([4, 10]), 9, timed=False))
    slots = np.array(beam.slots)
    slots[Field.ROW] = [[0, 1, 2, 3], [4, 5, 6, 7]]
    slots[Field.STATUS] = [[RUNS, FINISHED, FORCED, RUNS], [FINISHED] * 4]
    scores = mx.array([[-1.0, -2.0, -3.0, -np.inf], [-1.0] * 4])
    beam = beam._replace(slots=mx.array(slots), scores=scores)
    # When the joint is made of all rows and of those that run
    every = np.array(joint_logits(transducer, encoder, beam, output, gather=False))
    some = np.array(joint_logits(transducer, encoder, beam, output, gather=True))
    # Then the rows that run are the same, and nothing was computed for the others
    assert some[[0, 2]] == pytest.approx(every[[0, 2]], abs=1e-5)
    assert not some[[1, 3, 4, 5, 6, 7]].any()
    # And where none runs there is nothing but zeros
    idle = beam._replace(scores=mx.full((2, 4), -mx.inf))
    assert not np.array(joint_logits(transducer, encoder, idle, output, gather=True)).any()
