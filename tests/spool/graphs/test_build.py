"""Graphs as they are built, against those of the oracle's own script; what is refused."""

import json
from pathlib import Path
from typing import Any

import kaldifst
import numpy as np
import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from spool.errors import InvalidRequest
from spool.graphs import (
    build_graph,
    convert_graph,
    read_graph,
    read_lexicon,
    read_units,
    save_graph,
    write_graph,
)

GOLDEN = np.load(Path(__file__).parents[2] / "golden" / "wfst.npz")
pytestmark = pytest.mark.integration  # kaldilm runs in a process of its own
NOTES = json.loads(str(GOLDEN["answers"]))["graphs"]
ARRAYS = ("first", "emitting", "ilabel", "olabel", "next", "weight", "final")


def files(note: dict[str, Any], folder: Path) -> tuple[Path, Path, Path]:
    """units.txt, lexicon and ARPA file."""
    units, lexicon, arpa = folder / "units.txt", folder / "lexicon.txt", folder / "lm.arpa"
    units.write_text("".join(f"{unit} {index}\n" for index, unit in enumerate(note["units"])))
    lexicon.write_text("".join(f"{word} {' '.join(spelled)}\n" for word, spelled in note["lexicon"].items()))
    arpa.write_text(note["arpa"])
    return units, lexicon, arpa


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note["name"])
def test_a_graph_is_that_of_the_oracle(note: dict[str, Any], tmp_path: Path) -> None:
    units, lexicon, arpa = files(note, tmp_path)
    options = ["--units", str(units), "--topology", note["kind"], "--output", str(tmp_path / "made")]
    ran = invoke(main, ["graph", "build", "--lexicon", lexicon, "--arpa", arpa, *options])
    assert ran.exit_code == 0, ran
    graph = read_graph(ran.stdout.strip())
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(graph, name), GOLDEN[f"{note['name']}.{name}"], name)
    assert graph.words == tuple(note["word_names"])
    spelled = {word: [graph.units[unit] for unit in ways[0]] for word, ways in graph.lexicon.items()}
    assert spelled == note["lexicon"]


def test_the_same_graph_has_the_same_name(tmp_path: Path) -> None:
    units, lexicon, arpa = files(NOTES[0], tmp_path)
    known = read_units(units)
    graph = build_graph(known, read_lexicon(lexicon, known), arpa)
    again = build_graph(known, read_lexicon(lexicon, known), arpa)
    assert write_graph(graph) == write_graph(again)
    path, digest = save_graph(graph, tmp_path / "graphs")
    assert path.name == f"{digest[:16]}.npz"
    assert save_graph(again, tmp_path / "graphs") == (path, digest)


def test_a_word_may_be_spelled_in_two_ways(tmp_path: Path) -> None:
    units, lexicon, arpa = files(NOTES[0], tmp_path)
    word, spelled = next(iter(NOTES[0]["lexicon"].items()))
    with lexicon.open("a") as file:
        file.write(f"{word} f f f f f\n{word} {' '.join(spelled)}\n")
    known = read_units(tmp_path)
    graph = build_graph(known, read_lexicon(lexicon, known), arpa)
    assert sorted(map(len, graph.lexicon[word])) == sorted([len(spelled), 5])
    assert units.is_file()


def test_an_openfst_graph_is_converted(tmp_path: Path) -> None:
    name, units = NOTES[0]["name"], NOTES[0]["units"]
    graph = kaldifst.StdVectorFst()
    first, final = GOLDEN[f"{name}.first"], GOLDEN[f"{name}.final"]
    for state in range(len(first) - 1):
        graph.add_state()
        if np.isfinite(final[state]):
            graph.set_final(state, float(final[state]))
    graph.start = int(GOLDEN[f"{name}.start"])
    for state in range(len(first) - 1):
        for arc in range(first[state], first[state + 1]):
            parts = [GOLDEN[f"{name}.{key}"][arc].item() for key in ("ilabel", "olabel", "weight", "next")]
            graph.add_arc(state, kaldifst.StdArc(*parts))
    graph.write(str(tmp_path / "TLG.fst"))
    words = tmp_path / "words.txt"
    words.write_text("".join(f"{word} {i}\n" for i, word in enumerate(NOTES[0]["word_names"])))
    converted = convert_graph(tmp_path / "TLG.fst", units, words)
    for key in ARRAYS:
        np.testing.assert_array_equal(getattr(converted, key), GOLDEN[f"{name}.{key}"], key)
    with pytest.raises(InvalidRequest, match="not an OpenFst graph"):
        convert_graph(words, units, words)


BROKEN_TEXTS = {
    "a unit that is none": ("lexicon.txt", "new a q\n", "line 1: new needs 'q', which is not a unit"),
    "a word without units": ("lexicon.txt", "new\n", "line 1: new has no units"),
    "a word of the graph's own": ("lexicon.txt", "#0 a\n", "#0 cannot be a word"),
    "no words": ("lexicon.txt", "\n", "the lexicon has no words"),
    "ids out of order": ("units.txt", "<blank> 0\na 2\n", "line 2: expected a unit and its id 1"),
    "no ARPA file": ("lm.arpa", "\\data\\\nngram 1=what\n", "not an ARPA language model"),
    "other words": (
        "lm.arpa",
        "\\data\\\nngram 1=3\n\n\\1-grams:\n-1 zzz\n-1 <s>\n-1 </s>\n\n\\end\\\n",
        "the language model has no word of the lexicon",
    ),
}


@pytest.mark.parametrize("broken", BROKEN_TEXTS)
def test_what_makes_no_graph_is_refused(broken: str, tmp_path: Path) -> None:
    units, lexicon, arpa = files(NOTES[0], tmp_path)
    name, text, why = BROKEN_TEXTS[broken]
    (tmp_path / name).write_text(text)

    def build() -> None:
        known = read_units(units)
        build_graph(known, read_lexicon(lexicon, known), arpa)

    with pytest.raises(InvalidRequest, match=why):
        build()
