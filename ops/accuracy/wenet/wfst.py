"""Compares the search of decoding graphs with dumps of Kaldi's decoders and WeNet's runtime.

    python -m ops.accuracy.wenet.wfst --dumps FOLDER

FOLDER has wfst.npz (kaldi-decoder 0.3.2: exact lattices and n-best lists with a beam that loses nothing, best
paths of a pruned search) and runtime.npz (WeNet's runtime: n-best lists with times, skipped blanks, length
penalty). Prints what was compared, how much of it is equal, and the largest differences of costs. Kaldi
rounds costs to 1 / 1024 when it determinises a lattice.
"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.lib.npyio import NpzFile

from kernels.search.fixed_point import ONE
from kernels.search.wfst import grid_costs, wfst_links, wfst_tokens
from spool.domain.recognition import Hypothesis
from spool.domain.search.graph import GraphSearch
from worker.decode.wfst.graph import DecodingGraph, load_graph
from worker.decode.wfst.search import limits_of, wfst_search

NEAR = 2e-3


class Comparison:
    """What was compared so far, by name."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.equal: Counter[str] = Counter()
        self.gaps: dict[str, float] = {}

    def hold(self, kind: str, equal: bool) -> None:
        self.total[kind] += 1
        self.equal[kind] += equal

    def costs(self, of: str, ours: list[float], theirs: list[float]) -> bool:
        if len(ours) != len(theirs):
            return False
        gap = max((abs(a - b) for a, b in zip(ours, theirs, strict=True)), default=0.0)
        self.gaps[of] = max(self.gaps.get(of, 0.0), gap)
        return gap <= NEAR


def graph_of(dump: NpzFile, prefix: str) -> DecodingGraph:
    with tempfile.TemporaryDirectory() as folder:
        arrays: dict[str, Any] = {
            key.removeprefix(prefix): dump[key] for key in dump.files if key.startswith(prefix)
        }
        np.savez(Path(folder, "graph.npz"), **arrays)
        return load_graph(str(Path(folder, "graph.npz")))


def found(
    rows: list[np.ndarray], graph: DecodingGraph, settings: GraphSearch, count: int
) -> list[list[Hypothesis]]:
    lengths = np.array([len(row) for row in rows], np.int32)
    batch = np.zeros((len(rows), lengths.max(), rows[0].shape[1]), np.float32)
    for row, log_probs in zip(batch, rows, strict=True):
        row[: len(log_probs)] = np.roll(log_probs, -1, axis=1)
    blank = rows[0].shape[1] - 1
    return wfst_search(mx.array(batch), lengths, blank, graph, settings, count, blank_unit=None)


def compare_kaldi(dump: NpzFile, comparison: Comparison) -> None:
    for note in json.loads(str(dump["notes"])):
        graph = graph_of(dump, f"{note['name']}.graph.")
        rows = [dump[f"{note['name']}.{index}.log_probs"] for index in range(len(note["cases"]))]
        fast = GraphSearch.model_construct(
            name="", graph_beam=note["fast"]["beam"], max_active=note["fast"]["max_active"]
        )
        for (best,), case in zip(found(rows, graph, fast, 1), note["cases"], strict=True):
            labels = case["fast"]["ilabels"]
            tokens = [u - 2 for i, u in enumerate(labels) if u != 1 and (i == 0 or labels[i - 1] != u)]
            same = (
                comparison.costs("best paths", [-best.score], [case["fast"]["cost"]])
                and list(best.tokens) == tokens
            )
            comparison.hold("best paths (FasterDecoder)", same)
        for index, row in enumerate(rows):
            for expected in note["cases"][index]["lattices"]:
                settings = GraphSearch.model_construct(
                    name="", graph_beam=1e4, max_active=1_000_000, lattice_beam=expected["lattice_beam"]
                )
                (hypotheses,) = found([row], graph, settings, 10)
                costs = [each["cost"] for each in expected["nbest"]]
                same = comparison.costs(
                    "lists of determinised lattices", [-each.score for each in hypotheses], costs
                )
                comparison.hold("n-best lists (LatticeSimpleDecoder)", same)
                heard, length = grid_costs(mx.array(row[None])), mx.array([len(row)])
                tokens_of = wfst_tokens(heard, length, graph.device, limits_of(settings))
                reach = round(settings.lattice_beam * ONE)
                (links,) = wfst_links(heard, length, graph.device, tokens_of, reach, limits_of(settings))
                arcs, emits = links.arcs, graph.arrays.ilabel[links.arcs] > 0
                sources = zip(links.frames.tolist(), graph.sources[arcs].tolist(), strict=True)
                targets = zip((links.frames + emits).tolist(), graph.arrays.next[arcs].tolist(), strict=True)
                counts = len(arcs), len({*sources, *targets})
                comparison.hold("lattices: arcs, states", counts == (expected["arcs"], expected["states"]))


def compare_runtime(dump: NpzFile, comparison: Comparison) -> None:
    graph = graph_of(dump, "graph.")
    key = next(each for each in dump.files if dump[each].dtype.kind == "U")
    for case in json.loads(str(dump[key]))["cases"]:
        if case["kind"] != "wfst" or case["phrases"]:
            continue
        beams = (case["beam"], case["max_active"], case["lattice_beam"], case["blank_skip"])
        settings = GraphSearch.model_construct(
            name="",
            **dict(zip(("graph_beam", "max_active", "lattice_beam", "blank_skip"), beams, strict=True)),
            unit_penalty=case["length_penalty"],
        )
        (hypotheses,) = found([dump[case["name"]]], graph, settings, case["nbest"])
        same = comparison.costs(
            "the runtime's lists",
            [-each.score for each in hypotheses],
            [-each["score"] for each in case["hyps"]],
        )
        units = [([token + 1 for token in each.tokens], list(each.times)) for each in hypotheses]
        same = same and units == [(each["inputs"], each["times"]) for each in case["hyps"]]
        comparison.hold("n-best lists with units and times (WeNet's runtime)", same)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dumps", type=Path, required=True)
    folder = parser.parse_args().dumps
    comparison = Comparison()
    compare_kaldi(np.load(folder / "wfst.npz"), comparison)
    compare_runtime(np.load(folder / "runtime.npz"), comparison)
    for kind, total in comparison.total.items():
        print(f"{kind:52} {comparison.equal[kind]} of {total}")
    for of, gap in comparison.gaps.items():
        print(f"{'largest difference of a cost, ' + of:62} {gap:.1e}")
    return int(comparison.equal != comparison.total)


if __name__ == "__main__":
    raise SystemExit(main())
