"""n-grams over the model's tokens as second reader: lists and lattices against every path read by hand."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from spool.errors import InvalidRequest, ModelUnreadable, UnknownModel
from worker.decode import (
    BEGIN,
    END,
    Arpa,
    Final,
    WordArc,
    WordGraph,
    best_path,
    prune_graph,
    read_arpa,
    read_model,
    reweight,
    total,
    with_posteriors,
    write_arpa,
)
from worker.decode.fusion.estimate import estimate
from worker.engine import ModelRecognizer, decode_utterances, recognizer_of
from worker.models import DecodeRequest, SearchOptions, SpeechModel, load_model, load_reader

GOLDEN = Path(__file__).parents[3] / "golden"
WEIGHT = 0.7
PIECES = tuple("▁" + letter for letter in "abcdefg")

Path_ = tuple[tuple[str, ...], tuple[int, ...], float]
"""Words, tokens and weight."""


def write_model(path: Path, pieces: tuple[str, ...], order: int = 3, seed: int = 1) -> Path:
    chance = np.random.default_rng(seed)
    lines = [chance.integers(0, len(pieces), chance.integers(1, 9)).tolist() for _ in range(60)]
    grams = estimate(lines, len(pieces), order)
    write_arpa(path, grams.order, grams.probabilities, grams.backoffs, pieces)
    return path


def log_prob(arpa: Arpa, tokens: tuple[int, ...]) -> float:
    """Of the tokens and the end behind them, by the back-off rule alone."""

    def after(context: tuple[int, ...], token: int) -> float:
        if (*context, token) in arpa.entries:
            return arpa.entries[*context, token].log_prob
        entry = arpa.entries.get(context)
        return (entry.backoff if entry else 0.0) + after(context[1:], token)

    said = (BEGIN, *tokens, END)
    most = arpa.order - 1
    return sum(after(said[max(0, at - most) : at], said[at]) for at in range(1, len(said)))


def paths(graph: WordGraph, state: int = 0) -> Iterator[Path_]:
    """Every way from a state to an end."""
    if state in graph.finals:
        yield (), (), graph.finals[state].weight
    for arc in graph.arcs:
        if arc.source == state:
            for words, tokens, weight in paths(graph, arc.target):
                yield (arc.word, *words), (*arc.tokens, *tokens), arc.weight + weight


def random_lattice(seed: int) -> WordGraph:
    chance, arcs = np.random.default_rng(seed), []
    for source in range(6):
        for target in [source + 1, *chance.integers(source + 1, 7, 2).tolist()]:
            tokens = tuple(chance.integers(0, len(PIECES), chance.integers(0, 4)).tolist())
            word, weight = "".join(PIECES[token][1] for token in tokens), -float(chance.exponential(2))
            arcs.append(WordArc(source, target, word, source, target, weight, tokens=tokens))
    return WordGraph(tuple(arcs), {4: Final(-1.5, -0.5), 6: Final(-0.3)})


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_an_expanded_lattice_has_every_path_with_the_models_share(
    tmp_path: Path, order: int, seed: int
) -> None:
    path = write_model(tmp_path / "small.arpa", PIECES, order, seed)
    arpa, lattice = read_arpa(path, PIECES), random_lattice(seed)
    expanded = reweight(lattice, read_model(path, PIECES), WEIGHT)
    expected = [
        (words, tokens, weight + WEIGHT * log_prob(arpa, tokens)) for words, tokens, weight in paths(lattice)
    ]
    got = sorted(paths(expanded))
    assert [each[:2] for each in got] == [each[:2] for each in sorted(expected)]
    assert [each[2] for each in got] == pytest.approx([each[2] for each in sorted(expected)], abs=1e-4)
    best = max(weight for *_, weight in expected)
    assert best_path(expanded) == pytest.approx(best, abs=1e-4)
    whole = float(np.logaddexp.reduce([weight for *_, weight in expected]))
    assert total(expanded) == pytest.approx(whole, abs=1e-4)
    assert all(arc.source < arc.target for arc in expanded.arcs)
    kept = sorted(paths(prune_graph(with_posteriors(expanded), 1e6)))
    assert [each[:2] for each in kept] == [each[:2] for each in got], "each word keeps its tokens"


def audio(count: int = 3) -> list[np.ndarray]:
    chance = np.random.default_rng(11)
    return [chance.normal(0, 0.1, 8_000 + 4_000 * index).astype(np.float32) for index in range(count)]


@pytest.mark.parametrize("name", ["ctc.nemo", "tdt.nemo"])
def test_lists_and_lattices_of_a_search_are_read_to_the_last_path(tmp_path: Path, name: str) -> None:
    model: SpeechModel = load_model(GOLDEN / name)
    pieces = model.tokenizer.pieces
    path = write_model(tmp_path / "tokens.arpa", pieces)
    arpa, reader = read_arpa(path, pieces), load_reader(path)
    options = SearchOptions(decoder="beam", beam=4, nbest=4)
    ask = DecodeRequest(lattice=50.0, reader_weight=WEIGHT)
    recognizer = ModelRecognizer(model).read_by(recognizer_of(reader))
    ask = ask.model_copy(update={"search": options})
    info = recognizer.prepare(ask)
    assert info.reader == reader.info.digest
    before = decode_utterances(model, audio(), options, [ask] * 3, None)
    after = recognizer._decode(audio(), [ask] * 3, None)
    for first, read in zip(before, after, strict=True):
        expected = {
            each.tokens: each.score + WEIGHT * log_prob(arpa, each.tokens) for each in first.hypotheses
        }
        assert {each.tokens: each.score for each in read.hypotheses} == pytest.approx(expected, abs=1e-3)
        scores = [each.score for each in read.hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert first.graph is not None
        assert read.graph is not None
        told = Counter[tuple[int, ...]]()
        theirs: dict[tuple[int, ...], list[float]] = {}
        for _, tokens, weight in paths(first.graph):
            theirs.setdefault(tokens, []).append(weight + WEIGHT * log_prob(arpa, tokens))
            told[tokens] += 1
        ours: dict[tuple[int, ...], list[float]] = {}
        for _, tokens, weight in paths(read.graph):
            ours.setdefault(tokens, []).append(weight)
        assert told.keys() == ours.keys()
        assert {each.tokens for each in read.hypotheses} <= ours.keys()
        for tokens, weights in theirs.items():
            assert sorted(ours[tokens]) == pytest.approx(sorted(weights), abs=1e-3)
        assert best_path(read.graph) >= max(scores) - 1e-3, "the list's best is a path of the lattice"


def test_other_tokens_and_broken_files_are_refused(tmp_path: Path) -> None:
    model = load_model(GOLDEN / "ctc.nemo")
    strange = load_reader(write_model(tmp_path / "other.arpa", PIECES))
    recognizer = ModelRecognizer(model).read_by(recognizer_of(strange))
    with pytest.raises(InvalidRequest, match="built for the tokens of another model"):
        recognizer.prepare(DecodeRequest(reader_weight=WEIGHT, search=SearchOptions(decoder="beam", beam=4)))
    with pytest.raises(UnknownModel, match="a language model transcribes nothing"):
        load_model(tmp_path / "other.arpa")
    cut = tmp_path / "cut.arpa"
    cut.write_bytes((tmp_path / "other.arpa").read_bytes()[:-30])
    with pytest.raises(ModelUnreadable, match="cut off"):
        load_reader(cut)
