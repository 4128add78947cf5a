"""The batched searches against the one-at-a-time restatement in `reference`, and against themselves."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from spool.domain import Hypothesis
from spool.errors import EngineError, InvalidRequest
from tests.worker.decode.reference import (
    Encoded,
    HeadModel,
    Network,
    Trace,
    beam_reference,
    greedy_reference,
    random_frames,
    tiny_transducer,
)
from worker.decode import best_of
from worker.decode.search import search
from worker.models import CtcDecoder, CtcHead, SearchOptions

LENGTHS = [13, 1, 20, 0, 7]
KINDS = {"rnnt": (), "tdt": (0, 1, 2, 3, 4), "tdt-sparse": (0, 2, 5)}


def few(count: int, most: int) -> list[Any]:
    """Seeds, of which `make test-all` takes the first."""
    return [*range(count), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(count, most))]


def batch(seed: int, lengths: list[int]) -> Encoded:
    return Encoded(random_frames(seed, lengths), np.array(lengths, np.int32))


def alone(encoded: Encoded, row: int) -> Encoded:
    length = int(encoded.lengths[row])
    return Encoded(encoded.frames[row : row + 1, :length], encoded.lengths[row : row + 1])


def assert_traces(found: list[Hypothesis], expected: list[Trace]) -> None:
    assert [(h.tokens, h.times) for h in found] == [(t.tokens, t.times) for t in expected]
    assert [h.score for h in found] == pytest.approx([float(t.score) for t in expected], abs=2e-4)
    for one, other in zip(found, expected, strict=True):
        assert one.durations == other.durations
        assert one.confidences == pytest.approx(other.confidences, abs=1e-4)


def assert_alike(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [(h.tokens, h.times, h.durations) for h in found] == [
        (h.tokens, h.times, h.durations) for h in expected
    ]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", few(2, 6))
@pytest.mark.parametrize("max_symbols", [2, 10])
def test_greedy_equals_the_restatement(kind: str, seed: int, max_symbols: int) -> None:
    transducer = tiny_transducer(seed, 9, KINDS[kind])
    encoded = batch(seed + 50, LENGTHS)

    found = search(HeadModel(transducer), encoded, SearchOptions(max_symbols=max_symbols))

    network = Network(transducer)
    for row, length in enumerate(LENGTHS):
        frames = np.array(encoded.frames)[row, :length]
        assert_traces(found[row], [greedy_reference(network, frames, max_symbols)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", few(1, 3))
@pytest.mark.parametrize("beam", [1, 2, 4, 8, 16])
def test_beam_equals_the_restatement(kind: str, seed: int, beam: int) -> None:
    transducer = tiny_transducer(seed, 9, KINDS[kind])
    encoded = batch(seed + 50, LENGTHS)

    found = search(
        HeadModel(transducer), encoded, SearchOptions(decoder="beam", beam=beam, nbest=beam, max_symbols=3)
    )

    network = Network(transducer)
    for row, length in enumerate(LENGTHS):
        frames = np.array(encoded.frames)[row, :length]
        assert_traces(found[row], beam_reference(network, frames, beam, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_beam_may_be_wider_than_the_vocabulary(kind: str) -> None:
    transducer = tiny_transducer(4, 2, KINDS[kind])
    encoded = batch(9, [6, 4])

    found = search(HeadModel(transducer), encoded, SearchOptions(decoder="beam", beam=12, nbest=12))

    for row, length in enumerate([6, 4]):
        frames = np.array(encoded.frames)[row, :length]
        assert_traces(found[row], beam_reference(Network(transducer), frames, 12, 10))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", few(2, 4))
def test_beam_of_one_finds_greedys_tokens(kind: str, seed: int) -> None:
    model, encoded = HeadModel(tiny_transducer(seed, 9, KINDS[kind])), batch(seed, LENGTHS)

    greedy = search(model, encoded, SearchOptions())
    beam = search(model, encoded, SearchOptions(decoder="beam", beam=1))

    assert [(h[0].tokens, h[0].times) for h in beam] == [(h[0].tokens, h[0].times) for h in greedy]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [SearchOptions(), SearchOptions(decoder="beam", beam=5, nbest=5)])
def test_a_batch_equals_each_alone_in_any_order(kind: str, options: SearchOptions) -> None:
    model, encoded = HeadModel(tiny_transducer(7, 9, KINDS[kind])), batch(3, LENGTHS)
    solo = [search(model, alone(encoded, row), options)[0] for row in range(len(LENGTHS))]

    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 3, 4, 1]):
        shuffled = Encoded(encoded.frames[mx.array(order)], encoded.lengths[order])
        for row, found in zip(order, search(model, shuffled, options), strict=True):
            assert_alike(found, solo[row])


@pytest.mark.parametrize("options", [SearchOptions(), SearchOptions(decoder="beam", beam=3, nbest=3)])
@pytest.mark.parametrize("lengths", [[0], [0, 0], [0, 5]])
def test_an_utterance_without_frames_has_one_empty_hypothesis(
    options: SearchOptions, lengths: list[int]
) -> None:
    encoded = batch(0, lengths)
    if max(lengths) == 0:
        encoded = Encoded(encoded.frames[:, :0], encoded.lengths)

    found = search(HeadModel(tiny_transducer(0, 9, (0, 1, 2))), encoded, options)

    assert found[0] == [Hypothesis((), 0.0, (), ())]
    assert len(found) == len(lengths)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [SearchOptions(), SearchOptions(decoder="beam", beam=4, nbest=4)])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_an_utterance_that_is_not_a_number_fails_alone(
    kind: str, options: SearchOptions, poison: float
) -> None:
    model, encoded = HeadModel(tiny_transducer(2, 9, KINDS[kind])), batch(1, [9, 12, 6])
    clean = search(model, encoded, options)
    frames = np.array(encoded.frames)
    frames[1, 5:] = poison

    found = search(model, Encoded(mx.array(frames), encoded.lengths), options)

    assert found[1] == []
    assert_alike(found[0], clean[0])
    assert_alike(found[2], clean[2])
    with pytest.raises(EngineError, match="not finite"):
        best_of(found[1])


def test_padding_that_is_not_a_number_is_never_read() -> None:
    model, encoded = HeadModel(tiny_transducer(2, 9, (0, 1, 2))), batch(1, [9, 4])
    frames = np.array(encoded.frames)
    frames[1, 4:] = np.nan

    for options in (SearchOptions(), SearchOptions(decoder="beam", nbest=4)):
        found = search(model, Encoded(mx.array(frames), encoded.lengths), options)
        assert_alike(found[1], search(model, alone(encoded, 1), options)[0])


def test_nbest_is_sorted_by_score_a_token_and_cut() -> None:
    model, encoded = HeadModel(tiny_transducer(5, 9, (0, 1, 2))), batch(8, [25])

    whole = search(model, encoded, SearchOptions(decoder="beam", beam=8, nbest=8))[0]
    cut = search(model, encoded, SearchOptions(decoder="beam", beam=8, nbest=3))[0]

    ranks = [h.score / (len(h.tokens) + 1) for h in whole]
    assert ranks == sorted(ranks, reverse=True)
    assert len(whole) == 8
    assert cut == whole[:3]


def test_long_utterances_outgrow_the_first_token_block() -> None:
    transducer = tiny_transducer(1, 9)
    encoded = batch(2, [45])

    found = search(HeadModel(transducer), encoded, SearchOptions(decoder="beam", beam=3, nbest=3))

    expected = beam_reference(Network(transducer), np.array(encoded.frames)[0], 3, 10)
    assert len(expected[0].tokens) > 64
    assert_traces(found[0], expected)


def ctc_head(rows: list[list[float]]) -> CtcHead:
    decoder = CtcDecoder(len(rows[0]), len(rows[0]) - 1)
    decoder.decoder_layers[0].weight = mx.eye(len(rows[0]))
    decoder.decoder_layers[0].bias = mx.zeros(len(rows[0]))
    return CtcHead(decoder, len(rows[0]) - 1)


def test_ctc_greedy_collapses_runs_and_keeps_first_frames() -> None:
    # Given best labels a a - a b b - with blank last
    a, b, blank = [4.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 2.0]
    rows = [a, a, blank, a, b, b, blank]
    encoded = Encoded(mx.array([rows, rows]), np.array([7, 2], np.int32))

    whole, short = search(HeadModel(ctc=ctc_head(rows)), encoded, SearchOptions())

    assert whole[0].tokens == (0, 0, 1)
    assert whole[0].times == (0, 3, 4)
    assert whole[0].durations == (0, 0, 0)
    first, second = np.exp(4) / (np.exp(4) + 2), np.exp(3) / (np.exp(3) + 2)
    assert whole[0].confidences == pytest.approx([first, first, second], abs=1e-6)
    assert whole[0].score == pytest.approx(3 * np.log(first) + 2 * np.log(second), abs=1e-5)
    assert (short[0].tokens, short[0].times) == ((0,), (0,))


@pytest.mark.parametrize("unit", [0, 2, 4])
@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_the_best_labels_are_those_of_all_log_probabilities(unit: int, penalty: float) -> None:
    logits = np.random.default_rng(3).normal(size=(2, 40, 5)).astype(np.float32)
    head = CtcHead(lambda frames: frames, 5, blank_unit=unit, in_place=True)

    best = head.best_labels(mx.array(logits), penalty)

    log_probs = np.array(head.log_probs(mx.array(logits), penalty))
    logits[..., unit] -= penalty
    blank_last = np.concatenate([logits, logits[..., [unit]]], axis=-1)
    blank_last[..., unit] = -np.inf
    expected = blank_last - np.log(np.exp(blank_last).sum(-1, keepdims=True))
    np.testing.assert_allclose(log_probs, expected, atol=1e-6)
    np.testing.assert_array_equal(best.labels, expected.argmax(-1))
    np.testing.assert_allclose(best.log_probs, expected.max(-1), atol=1e-6)
    np.testing.assert_allclose(best.blank, expected[..., -1], atol=1e-6)


def test_ctc_fails_alone_and_takes_empty_utterances() -> None:
    rows = [[1.0, 0.0], [np.nan, 0.0], [0.0, 1.0]]
    encoded = Encoded(mx.array([rows] * 3), np.array([3, 1, 0], np.int32))

    found = search(HeadModel(ctc=ctc_head(rows)), encoded, SearchOptions(head="ctc"))

    assert found[0] == []
    assert found[1][0].tokens == (0,)
    assert found[2] == [Hypothesis((), 0.0, (), ())]


def test_what_cannot_be_searched_is_refused_in_a_sentence() -> None:
    rnnt, ctc = HeadModel(tiny_transducer(0, 4)), HeadModel(ctc=ctc_head([[0.0, 1.0]]))
    encoded = batch(0, [3])

    for model, options, words in [
        (rnnt, SearchOptions(head="tdt"), "no tdt head; it has: rnnt"),
        (rnnt, SearchOptions(head="ctc"), "no ctc head"),
        (ctc, SearchOptions(decoder="beam", head="rnnt"), "no rnnt head; it has: ctc"),
        (rnnt, SearchOptions(decoder="beam", beta=1.0), "beta: the beam search of an rnnt head has no such"),
        (ctc, SearchOptions(beta=1.0), "beta: the greedy search of a ctc head has no such parameter"),
        (
            rnnt,
            SearchOptions(decoder="beam", patience=2.0),
            "patience: .* it has: lm_blanks, max_symbols, pruning, scores",
        ),
        (HeadModel(), SearchOptions(), "none that can be searched"),
    ]:
        with pytest.raises(InvalidRequest, match=words):
            search(model, encoded, options)
