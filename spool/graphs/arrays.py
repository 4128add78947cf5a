"""A decoding graph as flat arrays in one file, which a worker reads without any library of transducers.

The file is numpy's `.npz` without pickles: `first` int32 [S + 1], `emitting` int32 [S], `ilabel`, `olabel`,
`next` int32 [M], `weight` float32 [M], `final` float32 [S] (inf: not final), `start` int32, and `notes`, JSON
with units, words and lexicon. A state's arcs lie side by side, those with an input label first, `emitting` of
them. Input label i + 1 is unit i, 0 none; unit 0 is blank. Output label i is word i, 0 none. Weights are
negative natural logarithms. Who knows the arrays' bytes knows the graph: its identity is the file's SHA-256.
"""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest

INTEGERS = ("first", "emitting", "ilabel", "olabel", "next")
NUMBERS = ("weight", "final")
MOST_WEIGHT = 1000.0
"""The largest weight of an arc or a final state, in natural logarithm."""
LONGEST_EPSILONS = 1000
Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class GraphArrays:
    """S states and M arcs, as stored in the file.

    units: their names, blank first; empty if the file has none. words: by output label, the first of them for
    label 0. lexicon: for each word its spellings, in units' ids. facts: further notes of the builder. level:
    int32 [S], the number of arcs on the longest path without an input label that ends in a state.
    """

    first: Ints
    emitting: Ints
    ilabel: Ints
    olabel: Ints
    next: Ints
    weight: Floats
    final: Floats
    start: int
    units: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    lexicon: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    level: Ints = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def states(self) -> int:
        """The number of states."""
        return len(self.emitting)

    @property
    def arcs(self) -> int:
        """The number of arcs."""
        return len(self.ilabel)

    @property
    def labels(self) -> int:
        """The number of input labels that a search must know: of units, or up to the largest that is used."""
        return len(self.units) or int(self.ilabel.max(initial=1))

    @property
    def epsilon_depth(self) -> int:
        """The number of arcs on the longest path without an input label."""
        return int(self.level.max(initial=0))


def write_graph(graph: GraphArrays) -> bytes:
    """The file; equal graphs make equal bytes."""
    notes = {
        "units": list(graph.units),
        "words": list(graph.words),
        "lexicon": [[word, *map(list, spelled)] for word, spelled in sorted(graph.lexicon.items())],
        "facts": graph.facts,
    }
    text = json.dumps(notes, ensure_ascii=False, sort_keys=True)
    arrays: dict[str, Any] = {name: getattr(graph, name) for name in (*INTEGERS, *NUMBERS)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, start=np.int32(graph.start), notes=np.array(text), **arrays)
    return buffer.getvalue()


def save_graph(graph: GraphArrays, target: Path) -> tuple[Path, str]:
    """Write the graph to a file, or into a folder under the name of its hash; returns the path and the
    SHA-256."""
    content = write_graph(graph)
    digest = hashlib.sha256(content).hexdigest()
    path = target / f"{digest[:16]}.npz" if target.suffix != ".npz" else target
    draft = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        raise InvalidRequest(f"{path}: the graph cannot be written: {error.strerror}") from error
    return path, digest


def read_graph(path: str | Path) -> GraphArrays:
    """The graph of a file, checked; read again only if the file has changed. Raises InvalidRequest."""
    try:
        facts = Path(path).stat()
        return _open_graph(Path(path), facts.st_mtime_ns, facts.st_size)
    except OSError as error:
        raise InvalidRequest(f"{path}: the graph cannot be read: {error.strerror}") from error


@lru_cache(maxsize=4)
def _open_graph(path: Path, _changed: int, _size: int) -> GraphArrays:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays: dict[str, Any] = {
                **{name: file[name].astype(np.int32) for name in INTEGERS},
                **{name: file[name].astype(np.float32) for name in NUMBERS},
            }
            start = int(file["start"])
            notes = json.loads(str(file["notes"])) if "notes" in file.files else {}
        graph = GraphArrays(start=start, **arrays, **_names(notes))
    except (
        KeyError,
        IndexError,
        ValueError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
        EOFError,
    ) as error:
        raise InvalidRequest(f"{path}: not a graph of `spool graph build`: {error}") from error
    return with_levels(graph, str(path))


def _names(notes: dict[str, Any]) -> dict[str, Any]:
    lexicon = {word: tuple(tuple(map(int, way)) for way in ways) for word, *ways in notes.get("lexicon", ())}
    return {
        "units": tuple(map(str, notes.get("units", ()))),
        "words": tuple(map(str, notes.get("words", ()))),
        "lexicon": lexicon,
        "facts": dict(notes.get("facts", {})),
    }


def with_levels(graph: GraphArrays, name: str) -> GraphArrays:
    """The graph with its levels, once its arrays are found to be consistent. Raises InvalidRequest."""

    def refuse(why: str) -> InvalidRequest:
        return InvalidRequest(f"{name}: the graph is broken: {why}")

    states, arcs = graph.states, graph.arcs
    if states == 0 or graph.first.shape != (states + 1,) or graph.final.shape != (states,):
        raise refuse("its arrays of states differ in length")
    if any(getattr(graph, each).shape != (arcs,) for each in ("olabel", "next", "weight")):
        raise refuse("its arrays of arcs differ in length")
    counts = np.diff(graph.first)
    if graph.first[0] != 0 or graph.first[-1] != arcs or (counts < graph.emitting).any():
        raise refuse("arcs lie outside their states")
    if (counts < 0).any() or (graph.emitting < 0).any() or not 0 <= graph.start < states:
        raise refuse("arcs lie outside their states")
    if ((graph.next < 0) | (graph.next >= states)).any() or (graph.ilabel < 0).any():
        raise refuse("an arc leads to no state")
    source = np.repeat(np.arange(states), counts)
    labelled = np.arange(arcs) < graph.first[source] + graph.emitting[source]
    if ((graph.ilabel > 0) != labelled).any():
        raise refuse("a state's arcs with a label do not come first")
    if graph.units and graph.ilabel.max(initial=0) > len(graph.units):
        raise refuse(f"a label is outside its {len(graph.units)} units")
    if graph.words and not 0 <= graph.olabel.min(initial=0) <= graph.olabel.max(initial=0) < len(graph.words):
        raise refuse(f"an output label is outside its {len(graph.words)} words")
    if (
        not (np.abs(graph.weight) <= MOST_WEIGHT).all()
        or not ((np.abs(graph.final) <= MOST_WEIGHT) | (graph.final == np.inf)).all()
    ):
        raise refuse(f"a weight is not a number, or beyond {MOST_WEIGHT:g}")
    level = _levels(source[~labelled], graph.next[~labelled], states)
    if level is None:
        raise refuse("arcs without a label form a cycle, or a path of more than a thousand")
    return GraphArrays(**{**graph.__dict__, "level": level})


def _levels(source: NDArray[np.int64], target: Ints, states: int) -> Ints | None:
    """The number of arcs on the longest path that ends in each state, None if a cycle makes it endless."""
    level = np.zeros(states, np.int32)
    for _ in range(LONGEST_EPSILONS):
        longer = level.copy()
        np.maximum.at(longer, target, level[source] + 1)
        if (longer == level).all():
            return level
        level = longer
    return None
