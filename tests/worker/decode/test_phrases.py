"""Boosted phrases: what a run of tokens earns, against a count by hand, and sane with odd lists."""

import mlx.core as mx
import numpy as np
import pytest

from worker.decode import BoundGraph, phrase_tree

V = 12
GAIN = [1.0, 2 + np.log(2), 2 + np.log(3), 2 + np.log(4), 2 + np.log(5)]


def seen(bound: BoundGraph, state: mx.array) -> np.ndarray:
    """What each token earns in each state of [B, K], [B, K, V]."""
    return np.array(bound.label_scores(state, mx.ones(len(state))))


def walked(bound: BoundGraph, state: mx.array, token: int) -> mx.array:
    stays = mx.broadcast_to(mx.arange(state.shape[1]), state.shape)
    return bound.advance(state, stays, mx.full(state.shape, token, mx.int32))


def earned(phrases: list[list[int]], tokens: list[int], *, end: bool = True) -> float:
    bound = BoundGraph([phrase_tree(phrases, V)], [0])
    state, total = bound.start(1), 0.0
    for token in tokens:
        total += float(seen(bound, state)[0, 0, token])
        state = walked(bound, state, token)
    return total + (float(np.array(bound.ends(state)).item()) if end else 0.0)


def whole(length: int) -> float:
    return sum(GAIN[:length])


@pytest.mark.parametrize(
    ("phrases", "tokens", "expected"),
    [
        ([[1, 2, 3]], [1, 2, 3], whole(3)),
        ([[1, 2, 3]], [5, 1, 2, 3, 5, 1, 2, 3], 2 * whole(3)),
        ([[1, 2, 3]], [1, 2, 5], 0.0),  # broken off: all given back
        ([[1, 2, 3]], [1, 2], 0.0),  # cut by the end
        ([[1, 2, 3]], [1, 1, 2, 3], whole(3)),
        ([[1, 2], [1, 2, 3, 4]], [1, 2, 3, 5], whole(2)),  # the longer one breaks off, the shorter stays
        ([[1, 2], [1, 2, 3, 4]], [1, 2, 3, 4], whole(4)),
        ([[1, 2], [2, 3]], [1, 2, 3], whole(2)),  # a token earns for one phrase
        ([[1, 2], [2, 3]], [1, 2, 2, 3], 2 * whole(2)),
        ([[1, 2], [2, 3]], [1, 2, 5], whole(2)),
        ([[1, 2], [2, 3]], [1, 2], whole(2)),
        ([[1, 2], [2]], [1, 2, 5], whole(2)),  # the same token is not paid twice
        ([[1, 2, 3, 4], [2, 3]], [1, 2, 3, 5], whole(2)),  # finished within one that broke off
        ([[1, 2, 3, 4], [2, 3]], [1, 2, 3], whole(2)),
        ([[1, 2, 3, 4], [2, 3]], [1, 2, 3, 4], whole(4)),
        ([[1, 2, 3], [2, 3, 4, 5], [2]], [1, 2, 5], whole(1)),
        ([[1, 2, 3, 4], [2, 3], [3, 5]], [1, 2, 3, 5], whole(2)),
        ([[1, 1, 1]], [1, 1, 1, 1, 1, 1, 1], 2 * whole(3)),
        ([[], [1], [1], []], [5, 1, 5], whole(1)),
        ([], [1, 2, 3], 0.0),
        ([[]], [1, 2, 3], 0.0),
    ],
)
def test_a_run_of_tokens_earns(phrases: list[list[int]], tokens: list[int], expected: float) -> None:
    assert earned(phrases, tokens) == pytest.approx(expected, abs=1e-5)


def test_gains_come_at_once_and_no_step_away_from_a_phrase_is_rewarded() -> None:
    phrases = [[1, 2, 3], [2, 4], [3, 1, 2], [2]]
    bound = BoundGraph([phrase_tree(phrases, V)], [0])
    continuing = {token for phrase in phrases for token in phrase}

    assert earned(phrases, [1, 2], end=False) == pytest.approx(whole(2), abs=1e-5)
    rng = np.random.default_rng(0)
    state = bound.start(1)
    for _ in range(200):
        costs = seen(bound, state)[0, 0]
        assert all(costs[token] <= 1e-5 for token in range(V) if token not in continuing)
        state = walked(bound, state, int(rng.choice([1, 2, 3, 4])))


def by_hand(phrases: list[list[int]], tokens: list[int]) -> float:
    """Reads on with all beginnings of phrases; whichever is finished first takes the tokens it stands on."""
    total, run = 0.0, []
    for token in [*tokens, None]:
        run.append(token)
        while run and not any(phrase[: len(run)] == run for phrase in phrases):
            # The beginning breaks off: what it finished is paid and gone, or else its first token is.
            done = max((len(p) for p in phrases if p and p == run[: len(p)]), default=0)
            total += whole(done)
            run = run[max(done, 1) :]
    return total


def test_any_run_is_what_one_counts_by_hand() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        phrases = [rng.integers(0, 3, rng.integers(0, 6)).tolist() for _ in range(rng.integers(1, 6))]
        tokens = rng.integers(0, 3, 14).tolist()

        assert earned(phrases, tokens) == pytest.approx(by_hand(phrases, tokens), abs=1e-4), (phrases, tokens)


def test_each_utterance_of_a_batch_has_its_own_phrases() -> None:
    lists = [[[1, 2]], [], [[2, 1], [3]]]
    bound = BoundGraph([phrase_tree(phrases, V) for phrases in lists], [0, 1, 2, 0])
    state, totals = bound.start(1), np.zeros(4)
    for token in (1, 2, 1, 3):
        totals += seen(bound, state)[:, 0, token]
        state = walked(bound, state, token)
    totals += np.array(bound.ends(state))[:, 0]

    assert totals == pytest.approx(
        [earned(phrases, [1, 2, 1, 3]) for phrases in [*lists, lists[0]]], abs=1e-4
    )
    assert totals[1] == 0.0


@pytest.mark.parametrize("phrase", [[1] * 100, [1, 2] * 50])
def test_a_phrase_that_repeats_itself_stays_cheap(phrase: list[int]) -> None:
    graph = phrase_tree([phrase], V)

    assert graph.depth <= 4
    short = phrase[:7]
    assert earned([short], [*phrase[:5], 9, *short]) == pytest.approx(whole(5) + sum(_deep(6, 7)), abs=1e-4)


def _deep(first: int, last: int) -> list[float]:
    return [2 + float(np.log(n)) for n in range(first, last + 1)]


def test_ten_thousand_phrases() -> None:
    rng = np.random.default_rng(2)
    phrases = [rng.integers(0, 1000, rng.integers(1, 9)).tolist() for _ in range(10_000)]
    graph = phrase_tree(phrases, 1000)
    bound = BoundGraph([graph], [0, 0])

    costs = seen(bound, mx.array([[0, 0], [7, len(graph.first) - 1]], mx.int32))

    assert costs.shape == (2, 2, 1000)
    assert np.isfinite(costs).all()
    assert len(graph.first) > 30_000
    for phrase in phrases[:3]:
        assert _earned_in(bound, phrase) >= whole(min(len(phrase), 5)) - 1e-3


def _earned_in(bound: BoundGraph, tokens: list[int]) -> float:
    state, total = bound.start(1), 0.0
    for token in tokens:
        total += float(seen(bound, state)[0, 0, token])
        state = walked(bound, state, token)
    return total
