"""The lattice of what a beam kept, against the beam's own hypotheses and against sums over all alignments."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from spool.domain import Hypothesis
from tests.worker.decode.reference import (
    Encoded,
    HeadModel,
    Network,
    log_softmax,
    random_frames,
    tiny_transducer,
)
from worker.decode import Answer, Record, WordGraph, answers, best_path, prune_graph, word_graph
from worker.models import CtcDecoder, CtcHead, DecodeRequest, SearchOptions, Tokenizer

LETTERS = "abcdefghi"
WORDS = Tokenizer([f"▁{letter}" for letter in LETTERS])  # every token a word
KINDS = {"rnnt": (), "tdt": (0, 1, 2, 3, 4)}
LENGTHS = [13, 1, 20, 0, 7]
Model = partial(HeadModel, tokenizer=WORDS)


def ctc_head(width: int) -> CtcHead:
    decoder = CtcDecoder(width, width - 1)
    decoder.decoder_layers[0].weight = mx.eye(width)
    decoder.decoder_layers[0].bias = mx.zeros(width)
    return CtcHead(decoder, width - 1)


def case(kind: str, seed: int, lengths: list[int], vocabulary: int = 9) -> tuple[HeadModel, Encoded]:
    if kind == "ctc":
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, 2, (len(lengths), max(lengths), vocabulary + 1))
        return Model(ctc=ctc_head(vocabulary + 1)), Encoded(
            mx.array(logits.astype(np.float32)), np.array(lengths, np.int32)
        )
    encoded = Encoded(random_frames(seed + 50, lengths), np.array(lengths, np.int32))
    return Model(tiny_transducer(seed, vocabulary, KINDS[kind])), encoded


def beam(width: int) -> SearchOptions:
    return SearchOptions(decoder="beam", beam=width, nbest=width, max_symbols=3)


def texts(hypothesis: Hypothesis) -> tuple[str, ...]:
    return tuple(LETTERS[token] for token in hypothesis.tokens)


def paths(graph: WordGraph, state: int = 0) -> Iterator[tuple[tuple[str, ...], float, float]]:
    """Words, score and fused part of each path."""
    if state in graph.finals:
        yield (), graph.finals[state].weight, graph.finals[state].fused
    for arc in graph.arcs:
        if arc.source == state:
            for words, score, fused in paths(graph, arc.target):
                yield (arc.word, *words), arc.weight + score, arc.fused + fused


def spoken(graph: WordGraph, words: tuple[str, ...]) -> list[tuple[float, float]]:
    """Score and fused part of each path that has these words."""
    reached = [(0, 0.0, 0.0)]
    for word in words:
        reached = [
            (arc.target, score + arc.weight, fused + arc.fused)
            for state, score, fused in reached
            for arc in graph.arcs
            if (arc.source, arc.word) == (state, word)
        ]
    ends = graph.finals
    return [(score + ends[s].weight, fused + ends[s].fused) for s, score, fused in reached if s in ends]


def count(graph: WordGraph) -> int:
    """How many paths there are."""
    ways = [0] * graph.states
    for state in range(graph.states - 1, -1, -1):
        onward = sum(ways[arc.target] for arc in graph.arcs if arc.source == state)
        ways[state] = onward + (state in graph.finals)
    return ways[0]


def kept(answer: Answer, *, sums: bool) -> dict[tuple[str, ...], float]:
    """The score of each distinct text among the hypotheses."""
    found: dict[tuple[str, ...], list[float]] = {}
    for hypothesis in answer.hypotheses:
        found.setdefault(texts(hypothesis), []).append(hypothesis.score)
    add = np.logaddexp.reduce if sums else max
    return {words: float(add(scores)) for words, scores in found.items()}


@pytest.mark.parametrize("kind", [*KINDS, "ctc"])
@pytest.mark.parametrize("width", [1, 4, 8])
def test_every_hypothesis_is_a_path_with_its_score_and_none_is_better(kind: str, width: int) -> None:
    model, encoded = case(kind, 1, LENGTHS)

    for answer in answers(model, encoded, beam(width)):
        assert answer.graph is not None
        hypotheses = kept(answer, sums=kind != "ctc")
        for words, score in hypotheses.items():
            assert [found for found, _ in spoken(answer.graph, words)] == pytest.approx([score], abs=2e-4)
        assert best_path(answer.graph) == pytest.approx(max(hypotheses.values()), abs=2e-4)


@pytest.mark.parametrize("kind", [*KINDS, "ctc"])
def test_a_lattice_knows_more_than_the_hypotheses_and_each_text_once(kind: str) -> None:
    more = 0
    model, encoded = case(kind, 0, [25, 20, 15, 12] if kind == "tdt" else [12, 9, 7, 6])
    for answer in answers(model, encoded, beam(4)):
        assert answer.graph is not None
        assert count(answer.graph) < 50_000
        found = [words for words, _, _ in paths(answer.graph)]
        assert len(found) == len(set(found)) == count(answer.graph)
        more += len(found) - len(kept(answer, sums=True))
    assert more > 10


def alignments(network: Network, frames: np.ndarray, most: int) -> dict[tuple[int, ...], float]:
    """The probability of each token sequence of an RNNT, summed over all alignments of `most` labels a
    frame at most."""
    found: dict[tuple[int, ...], float] = {}

    def follow(
        frame: int, held: int, tokens: tuple[int, ...], reading: tuple[Any, ...], chance: float
    ) -> None:
        if frame == len(frames):
            found[tokens] = found.get(tokens, 0.0) + chance
            return
        logits, _ = network.joint(frames[frame], reading[0])
        chances = np.exp(log_softmax(logits.astype(np.float64)))
        follow(frame + 1, 0, tokens, reading, chance * chances[network.blank])
        if held < most:
            for token in range(network.blank):
                after = network.read(token, reading[1])
                follow(frame, held + 1, (*tokens, token), after, chance * chances[token])

    follow(0, 0, (), network.begin(), 1.0)
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_beam_that_keeps_everything_tells_the_models_own_probabilities(seed: int) -> None:
    transducer = tiny_transducer(seed, 2)
    transducer._joint.joint_net[2].bias = mx.zeros(3)
    frames = random_frames(seed, [2])
    options = SearchOptions(decoder="beam", beam=64, nbest=64)

    answer = answers(Model(transducer), Encoded(frames, np.array([2], np.int32)), options)[0]

    assert answer.graph is not None
    true = alignments(Network(transducer), np.array(frames)[0], most=5)
    for tokens in sorted(true, key=true.__getitem__)[-5:]:
        ((score, _),) = spoken(answer.graph, tuple(LETTERS[token] for token in tokens))
        assert math.exp(score) == pytest.approx(true[tokens], rel=1e-3)
    first = {
        letter: math.fsum(chance for tokens, chance in true.items() if tokens[:1] == (index,))
        for index, letter in enumerate("ab")
    }
    found = {
        letter: math.fsum(arc.share for arc in answer.graph.arcs if (arc.source, arc.word) == (0, letter))
        for letter in "ab"
    }
    assert found == pytest.approx(first, abs=1e-3)


def test_what_all_kept_paths_agree_on_is_not_certain() -> None:
    """One slot keeps one path; its words are as probable as the model found them."""
    model, encoded = case("rnnt", 1, [20])

    answer = answers(model, encoded, beam(1))[0]

    assert answer.graph is not None
    assert 0 < min(arc.share for arc in answer.graph.arcs) < 0.9
    assert all(arc.share == pytest.approx(min(math.exp(arc.acoustic), 1)) for arc in answer.graph.arcs[:3])


@pytest.mark.parametrize("kind", [*KINDS, "ctc"])
def test_a_batch_has_the_lattices_of_each_alone(kind: str) -> None:
    model, encoded = case(kind, 5, LENGTHS)
    whole = answers(model, encoded, beam(4))
    for row, length in enumerate(LENGTHS):
        if not length:
            continue
        solo = Encoded(encoded.frames[row : row + 1, :length], encoded.lengths[row : row + 1])
        one, other = answers(model, solo, beam(4))[0].graph, whole[row].graph
        assert one is not None
        assert other is not None
        assert [(a.source, a.target, a.word, a.start, a.end) for a in one.arcs] == [
            (a.source, a.target, a.word, a.start, a.end) for a in other.arcs
        ]
        for mine, theirs in zip(one.arcs, other.arcs, strict=True):
            assert (mine.weight, mine.share) == pytest.approx((theirs.weight, theirs.share), abs=1e-3)


@pytest.mark.parametrize("kind", [*KINDS, "ctc"])
def test_the_fused_part_of_a_path_is_what_its_phrases_earn(kind: str) -> None:
    model, encoded = case(kind, 2, [20, 9])
    ask = DecodeRequest(phrases=("a b", "c"), boost=0.5)

    for answer in answers(model, encoded, beam(4), [ask, ask]):
        assert answer.graph is not None
        for words, score in kept(answer, sums=kind != "ctc").items():
            ((whole, fused),) = spoken(answer.graph, words)
            assert whole == pytest.approx(score, abs=2e-4)
            pairs = sum(words[i : i + 2] == ("a", "b") for i in range(len(words)))
            earned = 0.5 * (words.count("c") + pairs * (1 + 2 + math.log(2)))
            assert fused == pytest.approx(earned, abs=1e-3)


def test_times_of_the_best_path_are_the_searchs() -> None:
    model, encoded = case("rnnt", 3, [20])
    answer = answers(model, encoded, beam(1))[0]

    assert answer.graph is not None
    assert [arc.start for arc in answer.graph.arcs] == list(answer.hypotheses[0].times)
    assert [arc.end for arc in answer.graph.arcs] == [time + 1 for time in answer.hypotheses[0].times]


def record(steps: list[list[tuple[int, int, int, float, float]]], ends: list[float], length: int) -> Record:
    """Steps of slots (label, frames to advance, parent, score before recombination, after it)."""
    table = np.array(steps, np.float64)
    durations = table[..., 1].astype(np.int32)
    parents = table[..., 2].astype(np.int32)
    frames = np.zeros_like(durations)
    at = np.zeros(durations.shape[1], np.int32)
    for step, jumps in enumerate(durations):
        frames[step] = at[parents[step]]
        at = frames[step] + jumps
    return Record(
        labels=table[..., 0].astype(np.int32),
        frames=frames,
        durations=durations,
        parents=parents,
        gained=table[..., 3].astype(np.float32),
        scores=table[..., 4].astype(np.float32),
        ends=np.array(ends, np.float32),
        length=length,
    )


DEAD = (-1, 0, 0, -np.inf, -np.inf)


def test_a_hypothesis_that_was_dropped_takes_the_future_of_the_one_it_met() -> None:
    # "a c" and "b c" stand on frame 2 with the same last word; the one goes on to "a c d", the other is lost.
    tale = record(
        [
            [(0, 1, 0, -1.0, -1.0), (1, 1, 0, -1.5, -1.5)],
            [(2, 1, 0, -2.0, -2.0), (2, 1, 1, -2.75, -2.75)],
            [(3, 1, 0, -2.5, -2.5), DEAD],
        ],
        [-2.5, -np.inf],
        length=3,
    )

    graph = word_graph(tale, WORDS)

    assert sorted((words, round(score, 5)) for words, score, _ in paths(graph)) == [
        (("a", "c", "d"), -2.5),
        (("b", "c", "d"), -3.25),  # behind by what it was behind where they met
    ]
    assert [words for words, _, _ in paths(prune_graph(graph, 0.5))] == [("a", "c", "d")]
    assert len(prune_graph(graph, 0.76).arcs) == len(graph.arcs)


def test_who_was_ahead_where_they_met_takes_nobodys_future() -> None:
    tale = record(
        [
            [(0, 1, 0, -1.5, -1.5), (1, 1, 0, -1.0, -1.0)],
            [(2, 1, 0, -2.75, -2.75), (2, 1, 1, -2.0, -2.0)],
            [(3, 1, 0, -3.0, -3.0), DEAD],
        ],
        [-3.0, -np.inf],
        length=3,
    )

    assert [words for words, _, _ in paths(word_graph(tale, WORDS))] == [("a", "c", "d")]


def test_a_finished_hypothesis_that_was_pushed_out_is_a_path() -> None:
    tale = record(
        [
            [(0, 2, 0, -3.0, -3.0), (1, 1, 0, -1.0, -1.0)],
            [(2, 1, 1, -1.5, -1.5), (3, 1, 1, -2.0, -2.0)],
        ],
        [-1.5, -2.0],
        length=2,
    )

    scores = {words: score for words, score, _ in paths(word_graph(tale, WORDS))}

    assert scores == {("a",): -3.0, ("b", "c"): -1.5, ("b", "d"): -2.0}


def test_equal_hypotheses_are_one_path_with_the_sum_of_both() -> None:
    # "a" on frame 0 then blank, and blank then "a" on frame 1, meet and become one.
    both = float(np.logaddexp(-1.0, -2.0))
    tale = record(
        [
            [(0, 0, 0, -0.5, -0.5), (-1, 1, 0, -1.0, -1.0)],
            [(-1, 1, 0, -1.0, both), (0, 0, 1, -2.0, -np.inf)],
            [(-1, 1, 0, both - 0.25, both - 0.25), DEAD],
        ],
        [both - 0.25, -np.inf],
        length=2,
    )

    found = list(paths(word_graph(tale, WORDS)))

    assert [words for words, _, _ in found] == [("a",)]
    assert found[0][1] == pytest.approx(both - 0.25, abs=1e-6)


def test_pieces_join_into_words_and_the_unfinished_word_must_agree() -> None:
    pieces = Tokenizer(["▁ca", "t", "r", "▁s", "at"])
    # "cat s" and "car s" meet in "s"; "cat sat" goes on, "car s" is lost and takes "at" from it.
    tale = record(
        [
            [(0, 1, 0, -0.5, -0.5), DEAD],
            [(1, 1, 0, -1.0, -1.0), (2, 1, 0, -1.5, -1.5)],
            [(3, 1, 0, -1.25, -1.25), (3, 1, 1, -2.0, -2.0)],
            [(4, 1, 0, -1.5, -1.5), DEAD],
        ],
        [-1.5, -np.inf],
        length=4,
    )

    graph = word_graph(tale, pieces)

    assert sorted((words, round(score, 5)) for words, score, _ in paths(graph)) == [
        (("car", "sat"), -2.25),
        (("cat", "sat"), -1.5),
    ]
    assert {(arc.word, arc.start, arc.end) for arc in graph.arcs} == {
        ("cat", 0, 2),
        ("car", 0, 2),
        ("sat", 2, 4),
    }


def test_links_that_go_round_are_cut() -> None:
    """Two lost prefixes that would each lead into the other's."""
    model, encoded = case("tdt", 0, [40] * 4, vocabulary=2)
    for answer in answers(model, encoded, beam(8)):
        assert answer.graph is not None
        assert all(arc.source < arc.target for arc in answer.graph.arcs)
        targets = {arc.target for arc in answer.graph.arcs} | {0}
        assert targets >= set(answer.graph.finals)
