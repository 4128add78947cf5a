"""The beam of transformers' `generate()`: the finished make room for better ones until none can come."""

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from worker.decode import GenerateBeam, GenerateState, ScoredTokens

VOCABULARY = 12
Table = NDArray[np.float32]


def make_table(seed: int, ends: tuple[int, ...], lift: float) -> Table:
    """Log-probabilities [V, V] of a token behind a token, ends `lift` likelier than others."""
    logits = np.random.default_rng(seed).normal(size=(VOCABULARY, VOCABULARY)) * 2
    logits[:, list(ends)] += lift
    table: Table = (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)
    return table


def search_plainly(table: Table, beams: GenerateBeam, cap: int) -> list[tuple[tuple[int, ...], float]]:
    """The same rules over lists: tokens with their end, and sums, best first."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    done: list[tuple[float, float, list[int]]] = []
    for n in range(1, cap + 1):
        candidates = sorted(
            (
                (np.float32(total) + table[tokens[-1] if tokens else 0, token], [*tokens, token])
                for total, tokens in live
                for token in range(VOCABULARY)
            ),
            key=lambda each: -each[0],
        )
        over = [tokens[-1] in beams.ends or n == cap for _, tokens in candidates]
        best = list(zip(candidates, over, strict=True))[: beams.beam]
        done += [(total / n**beams.length_penalty, total, tokens) for (total, tokens), ended in best if ended]
        done = sorted(done, key=lambda each: -each[0])[: beams.beam]
        live = [each for each, ended in zip(candidates, over, strict=True) if not ended][: beams.beam]
        full = len(done) == beams.beam
        if not live or (full and live[0][0] / n**beams.length_penalty <= done[-1][0]):
            break
    return [(tuple(tokens), float(total)) for _, total, tokens in done]


def advance(beams: GenerateBeam, state: GenerateState, tables: list[Table]) -> GenerateState:
    """One step, each utterance by its own table."""
    state.grow(int(np.array(state.steps).max()) + 1)
    count = beams.candidates
    steps, histories = np.array(state.steps), np.array(state.histories)
    last = [[row[steps[at] - 1] if steps[at] else 0 for row in histories[at]] for at in range(len(tables))]
    rows = np.stack([table[own] for table, own in zip(tables, last, strict=True)])
    tokens = np.argsort(-rows, axis=-1, kind="stable")[..., :count].astype(np.int32)
    scores = np.take_along_axis(rows, tokens, axis=-1)
    return beams.advance(state, mx.array(tokens), mx.array(scores), beams.ends[0])[0]


def with_end(found: ScoredTokens, expected: tuple[int, ...]) -> tuple[int, ...]:
    return (*found.tokens, expected[-1]) if found.ended else found.tokens


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.5])
@pytest.mark.parametrize("ends", [(3,), (3, 5)])
def test_the_list_is_that_of_the_plain_rules(beam: int, alpha: float, ends: tuple[int, ...]) -> None:
    beams, caps = GenerateBeam(ends, beam, alpha), [14, 6, 3, 1]
    tables = [make_table(seed, ends, lift) for seed, lift in enumerate([0.0, -2.0, 1.0, 1.0])]
    first, second = beams.start(caps[:2], [4, 9]), beams.start(caps[2:], [9, 4])
    state = GenerateState.join([advance(beams, first, tables[:2]), advance(beams, second, tables[2:])])
    for _ in range(max(caps)):
        if bool(mx.all(state.done)):
            break
        state = advance(beams, state, tables)
    for at, (table, cap) in enumerate(zip(tables, caps, strict=True)):
        found = beams.collect(state.select([at]), 0).hypotheses
        expected = search_plainly(table, beams, cap)
        assert [with_end(each, own) for each, (own, _) in zip(found, expected, strict=True)] == [
            own for own, _ in expected
        ]
        assert np.allclose([each.score for each in found], [total for _, total in expected], atol=1e-5)
        for each in found:
            steps = zip((0, *each.tokens), each.tokens, strict=False)
            assert each.log_probs == tuple(float(table[before, token]) for before, token in steps)


def test_what_the_limit_cuts_has_no_end() -> None:
    beams = GenerateBeam((3,), beam=2)
    state = beams.start([1], [1])
    scores = mx.array([[[-1.0, -2.0, -3.0]] * 2])
    state, *_ = beams.advance(state, mx.array([[[7, 3, 8]] * 2]), scores, 3)
    assert state.done.tolist() == [True]
    found = beams.collect(state, 0).hypotheses
    assert [(each.tokens, each.ended, each.score) for each in found] == [
        ((7,), False, -1.0),
        ((), True, -2.0),
    ]


def test_numbers_that_are_none_end_their_own_utterance_alone() -> None:
    beams = GenerateBeam((3,), beam=2)
    state = beams.start([5, 5], [1, 1])
    scores = mx.array([[[np.nan] * 3] * 2, [[-1.0, -2.0, -3.0]] * 2])
    state, _, fed = beams.advance(state, mx.array([[[7, 8, 9]] * 2] * 2), scores, 3)
    assert state.done.tolist() == [True, False]
    assert (np.array(fed) >= 0).all()
    assert beams.collect(state, 0).hypotheses == ()
