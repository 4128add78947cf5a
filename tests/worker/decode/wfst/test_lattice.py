"""The lattice of words of a graph's search holds its word sequences at their costs, and their times."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from ops.testbed.invoking import invoke
from spool.domain.search.graph import GraphSearch
from spool.errors import InvalidRequest
from tests.worker.decode.wfst.graphs import made_graph
from tests.worker.decode.wfst.test_command import GOLDEN, MODEL
from worker.cli.main import main
from worker.decode import Answer, WordArc, WordGraph, answers, check_options
from worker.models import DecodeRequest, SearchOptions, load_model

pytestmark = pytest.mark.integration  # a graph is built in a process of its own
PRUNE = 3.0


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_graph(load_model(MODEL).tokenizer.pieces, tmp_path_factory.mktemp("graph"))


@cache
def heard(graph: Path, count: int, prune: float) -> list[Answer]:
    model, dump = load_model(MODEL), np.load(GOLDEN / "wenet" / "rnnt.npz")
    samples = [dump[f"u{index}.wav"].astype(np.float32)[:24_000] / 32768 for index in range(2)]
    options = SearchOptions(decoder="wfst", beam=count, nbest=count, graph=GraphSearch(name=str(graph)))
    return answers(model, model.encode(samples), options, [DecodeRequest(lattice=prune)] * 2)


def sequences(graph: WordGraph, least: float) -> dict[tuple[str, ...], tuple[float, tuple[WordArc, ...]]]:
    """Of each word sequence that weighs no less, its best path."""
    to_go = [-np.inf] * graph.states
    for state in range(graph.states - 1, -1, -1):
        ways = [arc.weight + to_go[arc.target] for arc in graph.arcs if arc.source == state]
        ways += [graph.finals[state].weight] if state in graph.finals else []
        to_go[state] = max(ways, default=-np.inf)
    reached: list[dict[tuple[str, ...], tuple[float, tuple[WordArc, ...]]]] = [{} for _ in to_go]
    reached[0][()] = (0.0, ())
    ended: dict[tuple[str, ...], tuple[float, tuple[WordArc, ...]]] = {}
    for state, ways_here in enumerate(reached):
        for words, (weight, arcs) in ways_here.items():
            if state in graph.finals and (total := weight + graph.finals[state].weight) >= least:
                ended[words] = max(ended.get(words, (-np.inf, ())), (total, arcs), key=lambda way: way[0])
            for arc in graph.arcs:
                if arc.source == state and weight + arc.weight + to_go[arc.target] >= least:
                    way, known = (weight + arc.weight, (*arcs, arc)), reached[arc.target]
                    longer = (*words, arc.word)
                    known[longer] = max(known.get(longer, (-np.inf, ())), way, key=lambda way: way[0])
    return ended


def test_a_lattice_has_every_word_sequence_at_its_cost(graph: Path) -> None:
    for answer in heard(graph, 200, PRUNE):
        assert answer.graph is not None
        least = answer.hypotheses[0].score - PRUNE
        best = sequences(answer.graph, least)
        listed = [each for each in answer.hypotheses if each.score >= least + 1e-4]
        assert 10 < len(listed) < 200
        for hypothesis in listed:
            assert hypothesis.spoken is not None
            weight, arcs = best[tuple(word.text for word in hypothesis.spoken)]
            assert weight == pytest.approx(hypothesis.score, abs=1e-4)
        # Arcs have the times of their units: of the best path those of the hypothesis.
        hypothesis = answer.hypotheses[0]
        weight, arcs = max(best.values(), key=lambda pair: pair[0])
        assert weight == pytest.approx(hypothesis.score, abs=1e-4)
        assert [(arc.word, arc.start, arc.end) for arc in arcs] == [
            (word.text, word.first, word.last) for word in hypothesis.spoken or ()
        ]
        assert all(0 <= arc.share <= 1 + 1e-9 for arc in answer.graph.arcs)
        assert all(arc.source < arc.target for arc in answer.graph.arcs)


def test_a_lattice_changes_nothing_else(graph: Path) -> None:
    narrow, wide = heard(graph, 4, 0.5), heard(graph, 4, PRUNE)
    assert [each.hypotheses for each in narrow] == [each.hypotheses for each in wide]
    for answer, other in zip(narrow, wide, strict=True):
        one, two = (each.lattice(0.5, 0.04, 1.5) for each in (answer, other))
        assert one is not None
        assert two is not None
        assert one == two.model_copy(update={"arcs": tuple(one.arcs)})
        kept = [(arc.word, arc.start, arc.end, arc.acoustic, arc.lm) for arc in one.arcs]
        assert kept == [(arc.word, arc.start, arc.end, arc.acoustic, arc.lm) for arc in two.arcs]


def test_the_command_prints_the_lattice_of_a_graph(graph: Path, tmp_path: Path) -> None:
    dump = np.load(GOLDEN / "wenet" / "rnnt.npz")
    soundfile.write(tmp_path / "a.wav", dump["u0.wav"].astype(np.int16), 16_000)
    common = ["transcribe", str(tmp_path / "a.wav"), "--model", str(MODEL), "--no-chunk", "--decoder", "wfst"]
    common += ["--graph", str(graph), "--prune", "1"]
    outcome = invoke(main, [*common, "--lattice", "json"])
    assert outcome.exit_code == 0, outcome.output
    (row,) = json.loads(outcome.stdout)
    shown: dict[str, Any] = row["lattice"][0]
    assert shown["score"] == pytest.approx(row["nbest"][0]["score"], abs=1e-3)
    assert {word["text"] for word in row["words"]} <= {arc["word"] for arc in shown["arcs"]}
    kaldi = invoke(main, [*common, "--format", "kaldi"])
    assert len(kaldi.stdout.splitlines()) > len(shown["arcs"])


def test_alternatives_and_rescored_lattices_are_refused(graph: Path) -> None:
    model = load_model(MODEL)
    with pytest.raises(InvalidRequest, match="alternatives: a graph search yields none"):
        check_options(
            model,
            SearchOptions(decoder="wfst", graph=GraphSearch(name=str(graph))),
            DecodeRequest(alternatives=1),
        )
    with pytest.raises(InvalidRequest, match="lattice: it keeps no lattice"):
        check_options(
            model,
            SearchOptions(decoder="rescore", graph=GraphSearch(name=str(graph)), head="ctc"),
            DecodeRequest(lattice=1.0),
        )
