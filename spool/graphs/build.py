"""A token-lexicon-grammar graph (TLG) from units, a lexicon and an ARPA model, by kaldifst and kaldilm.

G = the ARPA model, with #0 on its back-off arcs; L = spelled words, with #1, #2 … after those that are
spelled alike or are prefixes of others, and loops for #0; T = the CTC topology of units; LG =
minimize(determinize*(L ∘ G, log semiring)); TLG = T ∘ LG (Mohri, Pereira and Riley 2002; EESEN, Miao et al.
2015).

Needs the extra `graph`, at build time only.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from spool.errors import InvalidRequest, SpoolError
from spool.graphs.arrays import GraphArrays, with_levels

Topology = Literal["compact", "corrected"]
Lexicon = Sequence[tuple[str, Sequence[str]]]
MOST_CORRECTED = 500
"""The most units for the corrected topology, whose arcs grow with their square."""
_MARKS = ("<s>", "</s>")
# In a separate process, since kaldilm ends its process if the file is not ARPA.
_ARPA_TO_TEXT = """
import sys, kaldilm
arpa, words = sys.argv[1:]
print(kaldilm.arpa2fst(input_arpa=arpa, disambig_symbol="#0", read_symbol_table=words, max_order=-1))
"""


def read_units(path: Path) -> tuple[str, ...]:
    """The units of a `units.txt` (`unit id` per line), or of a list with one unit per line; blank first.
    Raises InvalidRequest."""
    folder = path / "units.txt" if path.is_dir() else path
    units: list[str] = []
    for number, fields in _lines(folder):
        if len(fields) > 2 or (len(fields) == 2 and fields[1] != str(len(units))):
            raise InvalidRequest(f"{folder}: line {number}: expected a unit and its id {len(units)}")
        units.append(fields[0])
    if len(units) < 2:
        raise InvalidRequest(f"{folder}: blank and at least one unit are needed")
    return tuple(units)


def read_lexicon(path: Path, units: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """The words of a lexicon (`word unit unit …` per line; a word may have several lines). Raises
    InvalidRequest."""
    known = set(units[1:])
    entries: dict[tuple[str, tuple[str, ...]], None] = {}
    for number, (word, *spelled) in _lines(path):
        if not spelled:
            raise InvalidRequest(f"{path}: line {number}: {word} has no units")
        if missing := [unit for unit in spelled if unit not in known]:
            raise InvalidRequest(f"{path}: line {number}: {word} needs {missing[0]!r}, which is not a unit")
        if word in ("<eps>", "#0", *_MARKS):
            raise InvalidRequest(f"{path}: line {number}: {word} cannot be a word")
        entries[word, tuple(spelled)] = None
    if not entries:
        raise InvalidRequest(f"{path}: the lexicon has no words")
    return list(entries)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: not UTF-8 text") from error
    except OSError as error:
        raise InvalidRequest(f"{path}: cannot be read: {error.strerror}") from error
    return ((number, fields) for number, line in enumerate(lines, 1) if (fields := line.split()))


def build_graph(
    units: Sequence[str], lexicon: Lexicon, arpa: Path, topology: Topology = "compact"
) -> GraphArrays:
    """The graph of units (blank first), a lexicon of (word, units) and an ARPA file over its words.

    topology: `compact` lets a unit follow itself without blank between, as WeNet's graphs do, and has one or
    two arcs per unit; `corrected` is CTC's own, with as many arcs as pairs of units. N-grams with a word that
    is not in the lexicon are left out. Raises InvalidRequest.
    """
    kaldifst = _library()
    if topology == "corrected" and len(units) > MOST_CORRECTED:
        raise InvalidRequest(
            f"the corrected topology takes up to {MOST_CORRECTED} units, not {len(units)}: use compact"
        )
    names = ("<eps>", *sorted({word for word, _ in lexicon}))
    words = {word: index for index, word in enumerate(names)}
    unit_of = {unit: index for index, unit in enumerate(units)}
    zero_unit, zero_word = len(units) + 1, len(names)
    spelled = sorted((word, tuple(unit_of[unit] + 1 for unit in spelling)) for word, spelling in lexicon)
    lexicon_fst, most = _lexicon_fst(spelled, words, zero_unit, zero_word)
    both = kaldifst.compose(lexicon_fst, _grammar(arpa, names))
    if both.num_states == 0:
        raise InvalidRequest(f"{arpa}: the language model has no word of the lexicon")
    kaldifst.determinize_star(both, use_log=True)
    kaldifst.minimize_encoded(both)
    kaldifst.arcsort(both, sort_type="ilabel")
    token = _token_fst(len(units), range(zero_unit, zero_unit + most + 1), topology)
    composed = kaldifst.compose(token, both)
    by_word: dict[str, tuple[tuple[int, ...], ...]] = {}
    for word, labels in spelled:
        by_word[word] = (*by_word.get(word, ()), tuple(label - 1 for label in labels))
    facts = {"topology": topology, "arpa_sha256": hashlib.sha256(arpa.read_bytes()).hexdigest()}
    graph = _arrays(composed, tuple(units), names, by_word, facts)
    if not graph.olabel.any():
        raise InvalidRequest(f"{arpa}: the language model has no word of the lexicon")
    return graph


def convert_graph(fst: Path, units: Sequence[str], words: Path) -> GraphArrays:
    """A TLG.fst (OpenFst's `vector` of `standard` arcs, input label unit + 1) and its words.txt. Raises
    InvalidRequest."""
    kaldifst = _library()
    names: dict[int, str] = {}
    for number, fields in _lines(words):
        if len(fields) != 2 or not fields[1].isdigit():
            raise InvalidRequest(f"{words}: line {number}: expected a word and its id")
        names[int(fields[1])] = fields[0]
    if not fst.is_file():
        raise InvalidRequest(f"{fst}: the graph cannot be read: no such file")
    with quiet():
        graph = kaldifst.StdVectorFst.read(str(fst))
    if graph is None:
        raise InvalidRequest(f"{fst}: not an OpenFst graph of the kind vector, with standard arcs")
    listed = tuple(names.get(index, "") for index in range(max(names, default=0) + 1))
    return _arrays(graph, tuple(units), listed, {}, {"topology": "converted"})


def _library() -> Any:  # noqa: ANN401 - without types
    try:
        import kaldifst
    except ImportError as error:
        raise SpoolError(
            "building a graph needs kaldifst and kaldilm: pip install 'spool-transcribe[graph]'"
        ) from error
    return kaldifst


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences Kaldi's C++, which writes to standard error directly."""
    sys.stderr.flush()
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def _compile(lines: Iterable[str]) -> Any:  # noqa: ANN401 - of a library without types
    kaldifst = _library()
    graph = kaldifst.compile("\n".join(lines) + "\n", acceptor=False)
    kaldifst.arcsort(graph, sort_type="olabel")
    return graph


def _grammar(arpa: Path, names: Sequence[str]) -> Any:  # noqa: ANN401
    """G, with arcs in the order of their input labels."""
    kaldifst = _library()
    if not arpa.is_file():
        raise InvalidRequest(f"{arpa}: the language model cannot be read: no such file")
    table = [f"{word} {index}" for index, word in enumerate((*names, "#0", *_MARKS))]
    with tempfile.TemporaryDirectory() as folder:
        symbols = Path(folder, "words.txt")
        symbols.write_text("\n".join(table) + "\n", encoding="utf-8")
        command = [sys.executable, "-c", _ARPA_TO_TEXT, str(arpa), str(symbols)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "line" in line] or done.stderr.splitlines()[
            -1:
        ]
        raise InvalidRequest(f"{arpa}: not an ARPA language model: {' '.join(errors[:1])[:300]}")
    grammar = kaldifst.compile(done.stdout, acceptor=False)
    kaldifst.arcsort(grammar, sort_type="ilabel")
    return grammar


def _lexicon_fst(
    spelled: Sequence[tuple[str, tuple[int, ...]]], words: dict[str, int], zero_unit: int, zero_word: int
) -> tuple[Any, int]:
    """L, and the largest disambiguation symbol."""
    kaldifst = _library()
    alike = Counter(labels for _, labels in spelled)
    begun = {labels[:size] for labels in alike for size in range(1, len(labels))}
    used: Counter[tuple[int, ...]] = Counter()
    lines, states = [], 1
    for word, labels in spelled:
        path = labels
        if alike[labels] > 1 or labels in begun:
            used[labels] += 1
            path = (*labels, zero_unit + used[labels])
        state = 0
        for index, label in enumerate(path):
            target = 0 if index == len(path) - 1 else states
            states += target != 0
            lines.append(f"{state} {target} {label} {words[word] if index == 0 else 0}")
            state = target
    graph = kaldifst.compile("\n".join([*lines, "0"]) + "\n", acceptor=False)
    kaldifst.add_self_loops(graph, [zero_unit], [zero_word])
    kaldifst.arcsort(graph, sort_type="olabel")
    return graph, max(used.values(), default=0)


def _token_fst(units: int, marks: Iterable[int], topology: Topology) -> Any:  # noqa: ANN401
    """T: state 0 is after blank or at the start, state u within unit u."""
    marks, lines = list(marks), ["0 0 1 0"]
    for unit in range(1, units):
        lines += [f"0 {unit} {unit + 1} {unit + 1}", f"{unit} {unit} {unit + 1} 0"]
        if topology == "compact":
            lines.append(f"{unit} 0 0 0")
            continue
        others = (other for other in range(1, units) if other != unit)
        lines += [f"{unit} 0 1 0", *(f"{unit} {other} {other + 1} {other + 1}" for other in others)]
    for state in range(units if topology == "corrected" else 1):
        lines += [*(f"{state} {state} 0 {mark}" for mark in marks), str(state)]
    return _compile(lines)


def _arrays(
    graph: Any,  # noqa: ANN401
    units: tuple[str, ...],
    words: tuple[str, ...],
    lexicon: dict[str, tuple[tuple[int, ...], ...]],
    facts: dict[str, Any],
) -> GraphArrays:
    kaldifst = _library()
    rows: list[tuple[int, int, int, float]] = []
    first, emitting, final = [0], [], []
    for state in range(graph.num_states):
        arcs = [
            (arc.ilabel, arc.olabel, arc.nextstate, float(arc.weight.value))
            for arc in kaldifst.ArcIterator(graph, state)
        ]
        rows += sorted(arcs, key=lambda arc: (arc[0] == 0, *arc[:3]))
        emitting.append(sum(arc[0] != 0 for arc in arcs))
        first.append(len(rows))
        final.append(float(graph.final(state).value))
    labels = np.array([row[:3] for row in rows], np.int32).reshape(-1, 3)
    arrays = GraphArrays(
        first=np.array(first, np.int32),
        emitting=np.array(emitting, np.int32),
        ilabel=labels[:, 0].copy(),
        olabel=labels[:, 1].copy(),
        next=labels[:, 2].copy(),
        weight=np.array([row[3] for row in rows], np.float32),
        final=np.array(final, np.float32),
        start=graph.start,
        units=units,
        words=words,
        lexicon=lexicon,
        facts=facts,
    )
    return with_levels(arrays, "the graph")
