"""Settling a beam, in plain MLX: against token lists, and where each slot's network row comes from."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.runtime import use_backend
from kernels.search import FINISHED, FORCED, Beam, Expansion, Field, Limits, empty_beam
from kernels.search import recombine_reference as settle
from kernels.search.expand import RUNS
from kernels.search.fixed_point import ONE
from kernels.search.recombine import recombine
from ops.testbed.kernel_cases import TESTED

BLANK = 9
Move = tuple[float, int, int, int]  # score, parent, label, duration


def limits_of(length: int, *, timed: bool = True, max_symbols: int = 3) -> Limits:
    return Limits(mx.array([length], mx.int32), mx.array([length, max_symbols], mx.int32), BLANK, timed)


def expansion(moves: list[Move]) -> Expansion:
    scores = [[[move[0] for move in moves]]] * 3
    choice = [[[move[field] for move in moves]] for field in (1, 2, 3)]
    return Expansion(mx.array(scores), mx.array(choice, mx.int32), mx.array([True]))


def after(beam: Beam, limits: Limits, *steps: list[Move]) -> Beam:
    for moves in steps:
        beam = settle(expansion(moves), beam, limits)
    return beam


def field(beam: Beam, name: Field) -> list[int]:
    found: list[int] = np.array(beam.slots)[name, 0].tolist()
    return found


DEAD = (-np.inf, -1, -1, 0)


@pytest.mark.parametrize("timed", [True, False])
def test_slots_hold_what_their_way_emitted(timed: bool) -> None:
    limits = limits_of(6, timed=timed)

    beam = after(
        empty_beam(1, 3, 8, limits),
        limits,
        [(-1.0, 0, 4, 0), (-2.0, 0, BLANK, 2), (-3.0, 0, 5, 1)],
        [(-1.5, 0, 4, 3), (-2.5, 2, BLANK, 1), (-4.0, 1, 7, 0)],
    )

    counts = field(beam, Field.COUNT)
    tokens = np.array(beam.tokens)[0]
    assert [tokens[k, :n].tolist() for k, n in enumerate(counts)] == [[4, 4], [5], [7]]
    assert field(beam, Field.LABEL) == [4, -1, 7]
    assert field(beam, Field.SPOKEN) == [0, 1, 2]
    assert field(beam, Field.FRAME) == [3, 2, 2]
    assert field(beam, Field.HELD) == [0, 0, 1]
    assert field(beam, Field.PARENT) == [0, 2, 1]


def test_equal_ones_at_one_frame_are_one() -> None:
    limits = limits_of(9)
    start = after(
        empty_beam(1, 3, 8, limits), limits, [(-1.0, 0, 4, 2), (-2.0, 0, BLANK, 1), (-3.0, 0, BLANK, 2)]
    )

    # Slot 0 waits, slot 1 says the same at the same frame, slot 2 at another one.
    beam = after(start, limits, [(-3.0, 1, 4, 2), (-1.5, 0, BLANK, 1), (-4.0, 2, 4, 3)])

    scores = np.array(beam.scores)[0]
    assert scores == pytest.approx([-np.inf, np.logaddexp(-1.5, -3.0), -4.0])
    # Slot 2 needs the state behind label 4: slot 1 has it, from where slot 0 was.
    assert field(beam, Field.ORIGIN)[1:] == [0, 0]


def test_an_rnnt_merges_at_any_frame() -> None:
    limits = limits_of(9, timed=False)
    start = after(empty_beam(1, 2, 8, limits), limits, [(-1.0, 0, 4, 0), (-2.0, 0, BLANK, 1)])

    beam = after(start, limits, [(-1.5, 0, BLANK, 1), (-1.5, 1, 4, 0)])

    assert np.array(beam.scores)[0] == pytest.approx([np.logaddexp(-1.5, -1.5), -np.inf])


def test_a_label_emitted_twice_is_read_once() -> None:
    limits = limits_of(9)

    beam = after(
        empty_beam(1, 4, 8, limits),
        limits,
        [(-1.0, 0, 4, 1), (-2.0, 0, 4, 2), (-3.0, 0, 5, 2), (-4.0, 0, 4, 9)],
    )

    # The last is over, reads nothing and keeps what it had.
    assert field(beam, Field.ORIGIN) == [4, 4, 6, 0]
    assert field(beam, Field.STATUS) == [RUNS, RUNS, RUNS, FINISHED]


def test_what_is_over_gives_no_row_away() -> None:
    limits = limits_of(2)
    start = after(empty_beam(1, 2, 8, limits), limits, [(-1.0, 0, 4, 2), (-2.0, 0, BLANK, 1)])

    beam = after(start, limits, [(-1.0, 0, -1, 0), (-2.5, 1, 4, 0)])

    assert field(beam, Field.STATUS) == [FINISHED, RUNS]
    assert field(beam, Field.ORIGIN) == [0, 3]


def test_labels_on_one_frame_are_counted_until_blank_is_forced() -> None:
    limits = limits_of(9, max_symbols=2)
    one = [(-1.0, 0, 4, 0), DEAD]

    beam = after(empty_beam(1, 2, 8, limits), limits, one)
    assert field(beam, Field.STATUS)[0] == RUNS
    beam = after(beam, limits, one)
    assert field(beam, Field.STATUS)[0] == FORCED
    beam = after(beam, limits, [(-2.0, 0, BLANK, 1), DEAD])
    assert field(beam, Field.STATUS)[0] == RUNS
    assert field(beam, Field.HELD)[0] == 0


def test_an_utterance_that_is_not_sound_dies_and_stays_dead() -> None:
    limits = limits_of(9)
    broken = expansion([(-1.0, 0, 4, 1)])._replace(finite=mx.array([False]))

    beam = settle(broken, empty_beam(1, 1, 8, limits), limits)

    assert np.array(beam.scores).tolist() == [[-np.inf]]
    beam = settle(expansion([(-1.0, 0, 4, 1)]), beam, limits)
    assert np.array(beam.finite).tolist() == [False]


def test_an_utterance_without_frames_is_over_from_the_start() -> None:
    limits = Limits(mx.array([0, 3], mx.int32), mx.array([3, 2], mx.int32), BLANK, True)

    beam = empty_beam(2, 2, 4, limits)

    assert np.array(beam.slots[Field.STATUS])[:, 0].tolist() == [FINISHED, RUNS]
    assert np.array(beam.slots[Field.ROW])[:, 0].tolist() == [0, 3]


@pytest.mark.parametrize("backend", ["reference", TESTED])
def test_in_fixed_point_the_best_score_goes_to_the_base_which_saturates(backend: str) -> None:
    limits = limits_of(6)._replace(fixed=True)
    grown = expansion([(-2.0, 0, 4, 0), (-200.5, 0, BLANK, 2), DEAD])
    for before, after_it in ((5, 5 - 2 * ONE), (-(2**31) + 11, -(2**31) + 1)):
        beam = empty_beam(1, 3, 8, limits)._replace(base=mx.array([before], mx.int32))
        with use_backend(backend):
            made = recombine(grown, beam, limits)
        assert np.array(made.base).tolist() == [after_it]
        assert np.array(made.scores).tolist() == [[0.0, -198.5, -np.inf]]
