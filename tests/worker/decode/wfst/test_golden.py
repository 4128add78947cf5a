"""The search of decoding graphs against Kaldi's decoders and WeNet's runtime, as `make_wfst.py` kept them."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from kernels.search import grid_costs, wfst_links, wfst_tokens
from kernels.search.fixed_point import ONE
from spool.domain import Hypothesis
from spool.domain.search.graph import GraphSearch
from worker.decode import DecodingGraph, limits_of, load_graph, wfst_search

GOLDEN = np.load(Path(__file__).parents[3] / "golden" / "wfst.npz")
ANSWERS = json.loads(str(GOLDEN["answers"]))
GRAPHS = {each["name"]: each for each in ANSWERS["graphs"]}
EVERYTHING = GraphSearch.model_construct(name="", graph_beam=1e4, max_active=100_000)
# Rounding to 1 / 65536 a frame, and Kaldi's own sums in float32.
NEAR = 2e-3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture
def graph(request: pytest.FixtureRequest, folder: Path) -> DecodingGraph:
    path = folder / f"{request.param}.npz"
    if not path.exists():
        names = ("first", "emitting", "ilabel", "olabel", "next", "weight", "final", "start")
        np.savez(path, **{name: GOLDEN[f"{request.param}.{name}"] for name in names})
    return load_graph(str(path))


def blank_last(log_probs: np.ndarray) -> np.ndarray:
    """As WeNet's head is searched: label 0 cannot be, and blank stands behind the units."""
    none = np.full_like(log_probs[:, :1], -np.inf)
    return np.concatenate([none, log_probs[:, 1:], log_probs[:, :1]], axis=1)


def found(
    rows: list[np.ndarray], graph: DecodingGraph, settings: GraphSearch, count: int
) -> list[list[Hypothesis]]:
    """All utterances as one batch."""
    lengths = np.array([len(row) for row in rows], np.int32)
    batch = np.zeros((len(rows), lengths.max(), rows[0].shape[1] + 1), np.float32)
    for row, log_probs in zip(batch, rows, strict=True):
        row[: len(log_probs)] = blank_last(log_probs)
    units = rows[0].shape[1]
    return wfst_search(mx.array(batch), lengths, units, graph, settings, count, blank_unit=0)


def utterances(name: str) -> list[np.ndarray]:
    return [GOLDEN[f"{name}.{index}"] for index in range(len(GRAPHS[name]["cases"]))]


@pytest.mark.parametrize("lattice_beam", [2.0, 6.0])
@pytest.mark.parametrize(("graph", "name"), [(name, name) for name in GRAPHS], indirect=["graph"])
def test_lattices_and_lists_are_kaldis(graph: DecodingGraph, name: str, lattice_beam: float) -> None:
    rows, cases = utterances(name), GRAPHS[name]["cases"]
    settings = GraphSearch.model_construct(
        name="", graph_beam=1e4, max_active=100_000, lattice_beam=lattice_beam
    )
    lists = found(rows, graph, settings, 10)
    for log_probs, hypotheses, case in zip(rows, lists, cases, strict=True):
        expected = next(each for each in case["lattices"] if each["lattice_beam"] == lattice_beam)
        costs = [each["cost"] for each in expected["nbest"]]
        assert [-each.score for each in hypotheses] == pytest.approx(costs, abs=NEAR)
        costs_of_units = grid_costs(mx.array(log_probs[None]))
        lengths, limits = mx.array([len(log_probs)]), limits_of(settings)
        tokens = wfst_tokens(costs_of_units, lengths, graph.device, limits)
        reach = round(lattice_beam * ONE)
        (links,) = wfst_links(costs_of_units, lengths, graph.device, tokens, reach, limits)
        assert len(links.arcs) == expected["arcs"]
        emits = graph.arrays.ilabel[links.arcs] > 0
        sources = zip(links.frames.tolist(), graph.sources[links.arcs].tolist(), strict=True)
        targets = zip((links.frames + emits).tolist(), graph.arrays.next[links.arcs].tolist(), strict=True)
        assert len({*sources, *targets}) == expected["states"]
        assert graph.weights[links.arcs].sum() / ONE == pytest.approx(
            expected["graph_cost"], abs=1e-3 * expected["arcs"]
        )


@pytest.mark.parametrize(("graph", "name"), [(name, name) for name in GRAPHS], indirect=["graph"])
def test_the_best_path_of_a_pruned_search_is_kaldis(graph: DecodingGraph, name: str) -> None:
    fast = GRAPHS[name]["fast"]
    settings = GraphSearch.model_construct(name="", graph_beam=fast["beam"], max_active=fast["max_active"])
    for (best,), case in zip(found(utterances(name), graph, settings, 1), GRAPHS[name]["cases"], strict=True):
        expected = case["fast"]
        assert -best.score == pytest.approx(expected["cost"], abs=NEAR)
        labels = expected["ilabels"]
        starts = [i for i, u in enumerate(labels) if u != 1 and (i == 0 or labels[i - 1] != u)]
        assert best.tokens == tuple(labels[i] - 1 for i in starts)
        assert best.times == tuple(starts)


@pytest.mark.parametrize("graph", ["runtime"], indirect=True)
@pytest.mark.parametrize("case", ANSWERS["runtime"], ids=lambda case: case["name"])
def test_lists_are_those_of_wenets_runtime(graph: DecodingGraph, case: dict[str, Any]) -> None:
    beams = (case["beam"], case["max_active"], case["lattice_beam"], case["blank_skip"])
    settings = GraphSearch.model_construct(
        name="",
        **dict(zip(("graph_beam", "max_active", "lattice_beam", "blank_skip"), beams, strict=True)),
        unit_penalty=case["length_penalty"],
    )
    (hypotheses,) = found([GOLDEN[f"runtime.{case['name']}"]], graph, settings, case["nbest"])
    expected = case["hyps"]
    assert [each.score for each in hypotheses] == pytest.approx([e["score"] for e in expected], abs=NEAR)
    assert [(list(each.tokens), list(each.times)) for each in hypotheses] == [
        (each["inputs"], each["times"]) for each in expected
    ]


@pytest.mark.parametrize("graph", ["char3"], indirect=True)
def test_an_utterance_depends_on_nothing_beside_it(graph: DecodingGraph) -> None:
    rows = [*utterances("char3"), utterances("char3")[0][:7], utterances("char3")[1][:0]]
    settings = GraphSearch.model_construct(name="", graph_beam=10.0, max_active=200)
    together = found(rows, graph, settings, 5)
    assert found(rows[::-1], graph, settings, 5)[::-1] == together
    assert [found([row], graph, settings, 5)[0] for row in rows] == together
    assert [len(each) for each in together[:3]] == [5, 5, 5]
    assert together[3][0].tokens == ()


@pytest.mark.parametrize("graph", ["char3"], indirect=True)
def test_a_frame_that_is_no_number_gives_up_its_utterance_alone(graph: DecodingGraph) -> None:
    rows = [row.copy() for row in utterances("char3")]
    whole = found(rows, graph, EVERYTHING, 3)
    rows[0][3, 4] = np.nan
    assert found(rows, graph, EVERYTHING, 3) == [[], whole[1]]
    rows[0][3] = -np.inf
    assert found(rows, graph, EVERYTHING, 3) == [[], whole[1]]


@pytest.mark.parametrize("graph", ["char3"], indirect=True)
def test_where_room_is_short_answers_stay(graph: DecodingGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = found(utterances("char3"), graph, EVERYTHING, 5)
    monkeypatch.setattr("kernels.search.wfst._STATES_PER_FRAME", 3)
    monkeypatch.setattr("kernels.search.wfst.LINKS_PER_FRAME", 1)
    assert found(utterances("char3"), graph, EVERYTHING, 5) == expected
    # A lattice of no more than 400 links still holds the best of them, at their own costs.
    monkeypatch.setattr("worker.decode.wfst.search.MOST_LINKS", 400)
    fewer = found(utterances("char3"), graph, EVERYTHING, 5)
    assert [each[0] for each in fewer] == [each[0] for each in expected]
