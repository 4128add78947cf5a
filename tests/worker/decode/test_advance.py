"""The prediction step for some rows: both ways give one answer, and rows that need none keep theirs."""

from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from tests.worker.decode.reference import random_frames, tiny_transducer
from worker.decode import beam, greedy
from worker.decode.advance import advance
from worker.decode.beam import beam_search
from worker.decode.greedy import greedy_search


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


@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)])
def test_searches_find_the_same_either_way(
    durations: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    transducer, lengths = tiny_transducer(3, 9, durations), [14, 5, 9]
    frames = random_frames(3, lengths)
    found = []
    for gather in (True, False):
        for module in (beam, greedy):
            monkeypatch.setattr(module, "advance", partial(advance, gather=gather))
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
