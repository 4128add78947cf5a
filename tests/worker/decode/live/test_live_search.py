"""Searches that are carried from chunk to chunk answer what the search over the whole answers."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from spool.domain import Hypothesis
from worker.decode import (
    LiveBeam,
    LiveCtcBeam,
    LiveCtcGreedy,
    LiveGreedy,
    LiveSearch,
    beam_search,
    before,
    ctc_beam_search,
    ctc_greedy,
    greedy_search,
)
from worker.models import NemoModel, load_model

GOLDEN = Path(__file__).parents[3] / "golden"
SHORTEST = 3
CUTS = ((2,), (14, 3, 1), (1000,))
MAX_SYMBOLS = 10


@cache
def model(name: str) -> NemoModel:
    loaded = load_model(str(GOLDEN / name))
    assert isinstance(loaded, NemoModel)
    return loaded


@cache
def frames(name: str) -> list[mx.array]:
    """Encoder frames of the shortest golden utterances."""
    recordings = np.load(GOLDEN / "audio.npz")
    samples = [
        row[:length].astype(np.float32) / 32_768
        for row, length in zip(recordings["audio"], recordings["lengths"], strict=True)
    ]
    encoded = model(name).encode(sorted(samples, key=len)[:SHORTEST])
    return [encoded.frames[row, :length] for row, length in enumerate(encoded.lengths.tolist())]


def pieces(rows: mx.array, sizes: Sequence[int]) -> list[mx.array]:
    cut, at, index = [], 0, 0
    while at < len(rows):
        cut.append(rows[at : at + sizes[index % len(sizes)]])
        at, index = at + sizes[index % len(sizes)], index + 1
    return cut


def run(search: LiveSearch[Any], rows: Sequence[mx.array], sizes: Sequence[Sequence[int]]) -> list[Any]:
    """The states at the end of streams that are cut in their own ways and advance together."""
    states = [search.open() for _ in rows]
    waiting = [pieces(each, size) for each, size in zip(rows, sizes, strict=True)]
    while any(waiting):
        going = [index for index, left in enumerate(waiting) if left]
        new = [waiting[index].pop(0) for index in going]
        search.advance([states[index] for index in going], new, [not waiting[index] for index in going])
    return states


def offline(name: str, rows: mx.array, beam: int | None, *, fixed: bool = False) -> list[Hypothesis]:
    head = model(name).transducer
    assert head is not None
    lengths = np.array([len(rows)], np.int32)
    if beam is None:
        return greedy_search(head, rows[None], lengths, MAX_SYMBOLS, fixed=fixed)[0]
    return beam_search(head, rows[None], lengths, beam, MAX_SYMBOLS, fixed=fixed)[0]


def assert_equal(given: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [(each.tokens, each.times, each.durations) for each in given] == [
        (each.tokens, each.times, each.durations) for each in expected
    ]
    np.testing.assert_allclose([each.score for each in given], [each.score for each in expected], atol=1e-3)
    np.testing.assert_allclose(
        np.concatenate([each.confidences for each in given]),
        np.concatenate([each.confidences for each in expected]),
        atol=1e-4,
    )


@pytest.mark.parametrize(("name", "fixed"), [("tdt", False), ("rnnt", False), ("tdt", True)])
def test_greedy_over_chunks_is_greedy_over_the_whole(name: str, fixed: bool) -> None:
    search = LiveGreedy(model(name).transducer, MAX_SYMBOLS, fixed=fixed)  # type: ignore[arg-type]
    states = run(search, frames(name), CUTS)
    for state, rows in zip(states, frames(name), strict=True):
        assert_equal(state.hypotheses(), offline(name, rows, None, fixed=fixed))
        assert state.stable == len(state.path.tokens)
    assert any(state.path.tokens for state in states)


@pytest.mark.parametrize(("name", "beam", "fixed"), [("tdt", 4, False), ("rnnt", 4, False), ("tdt", 4, True)])
def test_beam_over_chunks_is_the_beam_over_the_whole(name: str, beam: int, fixed: bool) -> None:
    search = LiveBeam(model(name).transducer, beam, MAX_SYMBOLS, fixed=fixed)  # type: ignore[arg-type]
    for state, rows in zip(run(search, frames(name), CUTS), frames(name), strict=True):
        assert_equal(state.hypotheses(), offline(name, rows, beam, fixed=fixed))


def test_ctc_over_chunks_is_ctc_over_the_whole() -> None:
    head = model("hybrid").ctc
    assert head is not None
    for state, rows in zip(run(LiveCtcGreedy(head), frames("hybrid"), CUTS), frames("hybrid"), strict=True):
        expected = ctc_greedy(head.best_labels(rows[None]), np.array([len(rows)]), head.blank)[0]
        assert_equal(state.hypotheses(), expected)


@pytest.mark.parametrize("fixed", [False, True])
def test_a_ctc_beam_over_chunks_is_the_beam_over_the_whole(fixed: bool) -> None:
    head = model("hybrid").ctc
    assert head is not None
    search = LiveCtcBeam(head, 4, 1.5, fixed=fixed)
    for state, rows in zip(run(search, frames("hybrid"), CUTS), frames("hybrid"), strict=True):
        log_probs, lengths = head.log_probs(rows)[None], np.array([len(rows)])
        expected = ctc_beam_search(log_probs, lengths, head.blank, 4, beta=1.5, fixed=fixed)[0]
        assert_equal(state.hypotheses(), expected)


@pytest.mark.parametrize("kind", ["greedy", "beam", "ctc"])
def test_what_is_stable_stays(kind: str) -> None:
    head, ctc = model("hybrid").transducer, model("hybrid").ctc
    assert head is not None
    assert ctc is not None
    rows = frames("hybrid")[-1]
    searches: dict[str, Any] = {
        "greedy": LiveGreedy(head, MAX_SYMBOLS),
        "beam": LiveBeam(head, 4, MAX_SYMBOLS),
        "ctc": LiveCtcBeam(ctc, 4),
    }
    search = searches[kind]
    state = search.open()
    if kind == "ctc":
        log_probs = ctc.log_probs(rows)[None]
        expected = ctc_beam_search(log_probs, np.array([len(rows)]), ctc.blank, 4)[0][0]
    else:
        expected = offline("hybrid", rows, None if kind == "greedy" else 4)[0]
    seen = []
    parts = pieces(rows, (3,))
    for index, part in enumerate(parts):
        search.advance([state], [part], [index + 1 == len(parts)])
        seen.append(before(state.path, state.stable))
    assert any(each.tokens for each in seen[:-1])
    for each in seen[:-1]:
        assert each.tokens == expected.tokens[: len(each.tokens)]
        assert each.times == expected.times[: len(each.times)]


@pytest.mark.parametrize("beam", [None, 4])
def test_forgotten_tokens_change_nothing_behind_them(beam: int | None) -> None:
    head = model("tdt").transducer
    assert head is not None
    search: Any = LiveGreedy(head, MAX_SYMBOLS) if beam is None else LiveBeam(head, beam, MAX_SYMBOLS)
    rows, state = frames("tdt")[-1], search.open()
    expected = offline("tdt", rows, beam)
    tokens: tuple[int, ...] = ()
    times: tuple[int, ...] = ()
    parts = pieces(rows, (5,))
    for index, part in enumerate(parts):
        search.advance([state], [part], [index + 1 == len(parts)])
        taken = before(state.path, state.stable)
        tokens, times = tokens + taken.tokens, times + taken.times
        state.forget(state.stable)
    rest = [(tokens + each.tokens, times + each.times) for each in state.hypotheses()]
    assert rest == [(each.tokens, each.times) for each in expected]


@pytest.mark.parametrize("beam", [None, 4])
def test_a_restart_reads_every_frame_once(beam: int | None) -> None:
    head = model("tdt").transducer
    assert head is not None
    search: Any = LiveGreedy(head, MAX_SYMBOLS) if beam is None else LiveBeam(head, beam, MAX_SYMBOLS)
    rows, state = frames("tdt")[-1], search.open()
    half = len(rows) // 2
    search.advance([state], [rows[:half]], [False])
    best = state.path
    ahead = state.row.frames.item() + state.frame if beam is None else state.frame + state.next_frame()
    search.restart(state)
    assert not state.path.tokens
    search.advance([state], [rows[half:]], [True])
    # Where the first half left off, a search of its own begins.
    [expected, *_] = offline("tdt", rows[ahead:], beam)
    assert state.hypotheses()[0].tokens == expected.tokens
    assert state.path.times == tuple(time + ahead for time in expected.times)
    assert all(time < ahead for time in best.times)


@pytest.mark.parametrize("beam", [None, 4])
def test_numbers_that_are_none_end_their_own_stream_alone(beam: int | None) -> None:
    head = model("rnnt").transducer
    assert head is not None
    search: Any = LiveGreedy(head, MAX_SYMBOLS) if beam is None else LiveBeam(head, beam, MAX_SYMBOLS)
    good, broken = frames("rnnt")[2], mx.full(frames("rnnt")[2].shape, float("nan"))
    first, second = run(search, [good, broken], ((4,), (4,)))
    assert not second.is_finite
    assert second.hypotheses() == []
    assert not second.path.tokens
    assert_equal(first.hypotheses(), offline("rnnt", good, beam))
