"""The loop of a transducer's beam: when a device is asked, and that either way of asking finds the same."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.runtime import use_backend
from kernels.search import Beam, Field
from spool.domain import Hypothesis
from tests.worker.decode.reference import Network, beam_reference, random_frames, tiny_transducer
from worker.decode import CHECK_EVERY, TOKEN_BLOCK, BeamSearch, BeamState, ReplayedBeam, beam_search
from worker.decode.transducer import beam


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Beam | None]]:
    """Steps as (their number, None), questions as (steps so far, the beam asked for)."""
    seen: list[tuple[int, Beam | None]] = []
    step, longest = BeamSearch._step, beam._longest_running

    def counted(search: BeamSearch, state: BeamState) -> BeamState:
        seen.append((sum(asked is None for _, asked in seen) + 1, None))
        return step(search, state)

    def asked(of: Beam) -> int:
        seen.append((sum(one is None for _, one in seen), of))
        return longest(of)

    monkeypatch.setattr(BeamSearch, "_step", counted)
    monkeypatch.setattr(beam, "_longest_running", asked)
    return seen


def found(lengths: list[int], durations: tuple[int, ...] = ()) -> list[list[Hypothesis]]:
    transducer, frames = tiny_transducer(3, 9, durations), random_frames(3, lengths)
    return beam_search(transducer, frames, np.array(lengths), 4, 3)


def test_a_device_is_asked_of_the_block_before_the_one_that_is_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = watched(monkeypatch)
    with use_backend("reference"):
        found([20, 9])

    asked = [(steps, int(np.array(of.slots[Field.FRAME]).max())) for steps, of in seen if of is not None]
    assert [steps for steps, _ in asked] == [CHECK_EVERY * block for block in range(len(asked))]
    # The first two questions are of the start, each later one of a beam one block older than what is queued.
    assert [frame == 0 for _, frame in asked[:3]] == [True, True, False]
    assert len(asked) > 4


def test_a_cpu_whose_kernels_have_run_is_asked_after_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplayedBeam, "run", lambda *_: None)
    seen = watched(monkeypatch)
    with use_backend("cpu"):
        found([20, 9])

    # The first question is whether there is anything to repeat.
    assert [of is None for _, of in seen] == [False, False, *[True, False] * (len(seen) // 2 - 1)]
    assert len(seen) > 20


def test_repeated_steps_are_made_by_python_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch)
    with use_backend("cpu"):
        found([20, 9])

    assert [steps for steps, _ in seen] == [0, 0, 0], (
        "asked at the start, behind the last step, and once more"
    )


@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("lengths", [[20, 9], [1, 0, 7], [8], [45]])
def test_both_ways_of_asking_find_the_same(
    lengths: list[int], durations: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = []
    for at_once in (True, False):
        monkeypatch.setattr(beam, "compiles_for_cpu", lambda answer=at_once: answer)
        ways.append(found(lengths, durations))

    for one, other in zip(*ways, strict=True):
        assert [(h.tokens, h.times, h.durations) for h in one] == [
            (h.tokens, h.times, h.durations) for h in other
        ]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


def test_room_for_tokens_grows_ahead_of_what_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    transducer, frames = tiny_transducer(1, 9), random_frames(2, [45])
    monkeypatch.setattr(beam, "compiles_for_cpu", lambda: False)

    (rows,) = beam_search(transducer, frames, np.array([45]), 3, 10)

    expected = beam_reference(Network(transducer), np.array(frames)[0], 3, 10)
    assert len(expected[0].tokens) > TOKEN_BLOCK
    assert [row.tokens for row in rows] == [trace.tokens for trace in expected]


@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)])
def test_a_beam_of_32_is_the_restatements(durations: tuple[int, ...]) -> None:
    transducer, frames = tiny_transducer(2, 40, durations), random_frames(6, [11, 4])

    rows = beam_search(transducer, frames, np.array([11, 4]), 32, 3)

    for found_, length, row in zip(rows, [11, 4], np.array(frames), strict=True):
        expected = beam_reference(Network(transducer), row[:length], 32, 3)
        assert [h.tokens for h in found_] == [trace.tokens for trace in expected]
        assert [h.score for h in found_] == pytest.approx([float(t.score) for t in expected], abs=2e-4)


def test_nothing_to_search_is_one_empty_hypothesis() -> None:
    empty = Hypothesis((), 0.0, (), ())
    assert beam_search(tiny_transducer(0, 9), mx.zeros((2, 0, 6)), np.zeros(2), 4, 3) == [[empty], [empty]]
