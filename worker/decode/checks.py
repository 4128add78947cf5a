"""What a search refuses, before any audio. Knows what each search takes; runs none."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from kernels.search.wfst import MAX_BEAM
from spool.domain.recognition import Hypothesis
from spool.errors import InvalidRequest
from spool.graphs.arrays import MOST_WEIGHT
from worker.decode.fusion.fusion import Speller
from worker.decode.wfst.graph import check_units, load_graph, unit_columns
from worker.models.base import HeadName, SpeechModel
from worker.models.requests import DecodeRequest, SearchOptions

MOST_SCALE = 100.0
"""The largest acoustic_scale."""
COMMON = frozenset({"decoder", "beam", "nbest", "head", "att_context", "reader"})
"""Options that every search understands: greedy is a beam of one, and has one hypothesis."""
_CHOICES = {
    "pruning": ("late", "early"),
    "scores": ("float", "fixed"),
    "alignments": ("auto", "best", "all"),
}
_OF_GRAPHS = ("max_active", "graph_beam", "lattice_beam", "blank_skip", "acoustic_scale", "length_penalty")


@dataclass(frozen=True, slots=True)
class Searcher:
    """One way to search one kind of head.

    takes: the options that it understands beside `COMMON`. run: from a `SearchInput` to the hypotheses of
    each utterance; None if the search needs more than frames. fuses: whether it supports a language model and
    phrases. lattices: whether it supports lattices. sums: whether it sums over a hypothesis's alignments.
    """

    takes: frozenset[str]
    run: Callable[[Any], list[list[Hypothesis]]] | None
    fuses: bool
    lattices: bool
    sums: bool = False


class Searchable(Protocol):
    """What the search needs of a model."""

    @property
    def heads(self) -> Mapping[HeadName, Any]:
        """Transducers, CTC heads and attention decoders, by name."""

    @property
    def tokenizer(self) -> Speller:
        """The tokenizer, used for fusion."""


def check_ranges(options: SearchOptions) -> None:
    """Raise InvalidRequest for a value that no search takes."""
    if options.beam < 1 or options.nbest < 1 or (options.max_symbols or 1) < 1:
        raise InvalidRequest("beam, nbest and max_symbols must be at least 1")
    for name, known in _CHOICES.items():
        if (value := getattr(options, name)) not in known:
            raise InvalidRequest(f"unknown {name} {value!r}: {', '.join(known[:-1])} or {known[-1]}")
    if not 0 <= options.blank_penalty < math.inf:
        raise InvalidRequest("blank_penalty must be a finite number and not below 0")
    for field in fields(options):
        value = getattr(options, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidRequest(f"{field.name} must be a finite number")


def refuse_others(head: HeadName, searcher: Searcher, options: SearchOptions) -> None:
    """Raise InvalidRequest for an option that the search does not understand."""
    for field in fields(SearchOptions):
        if field.name not in searcher.takes | COMMON and getattr(options, field.name) != field.default:
            takes = ", ".join(sorted(searcher.takes)) or "none"
            raise InvalidRequest(
                f"{field.name}: the {options.decoder} search of {describe_head(head)} has no such "
                f"parameter; it has: {takes}"
            )
    if not 0 <= options.search_ctc_weight < 1:
        raise InvalidRequest("search_ctc_weight must be at least 0 and below 1")


def describe_head(head: HeadName) -> str:
    """The head with its article."""
    return f"{'an' if head.startswith(('attention', 'rnnt')) else 'a'} {head} head"


def check_graph(model: Searchable, options: SearchOptions) -> None:
    """Raise InvalidRequest if there is no graph, it is not for this model, or a beam is out of range."""
    if options.graph is None:
        if options.decoder == "wfst":
            raise InvalidRequest("graph: the wfst search needs a decoding graph (spool graph build)")
        for name in _OF_GRAPHS:
            if getattr(options, name) != getattr(SearchOptions(), name):
                raise InvalidRequest(f"{name}: needs a graph, and none is given")
        return
    if not 0 < options.graph_beam <= MAX_BEAM or options.max_active < 1:
        raise InvalidRequest(f"graph_beam must be above 0 and at most {MAX_BEAM:g}, max_active at least 1")
    if not 0 <= options.lattice_beam <= MOST_WEIGHT or abs(options.length_penalty or 0) > MOST_WEIGHT:
        raise InvalidRequest(f"lattice_beam must be from 0 to {MOST_WEIGHT:g}, length_penalty within that")
    if not 0 < options.blank_skip <= 1 or not 0 < options.acoustic_scale <= MOST_SCALE:
        raise InvalidRequest(
            f"blank_skip must be above 0 and at most 1, acoustic_scale above 0 and at most {MOST_SCALE:g}"
        )
    graph, ctc = load_graph(options.graph).arrays, model.heads["ctc"]
    check_units(graph, model.tokenizer.pieces)
    unit_columns(graph, ctc.blank, blank_unit=ctc.blank_unit)


def check_request(searcher: Searcher, options: SearchOptions, request: DecodeRequest) -> None:
    """Raise InvalidRequest where the search cannot answer what is asked of it beyond its hypotheses."""
    if request.alternatives < 0 or not (request.lattice is None or 0 <= request.lattice < math.inf):
        raise InvalidRequest("alternatives and what a lattice is pruned to must not be below 0")
    if options.decoder == "wfst" and request.alternatives:
        raise InvalidRequest("alternatives: a graph search yields none; request its lattice")
    if searcher.lattices or not (request.alternatives or request.lattice is not None):
        return
    why = "it keeps no lattice"
    if options.decoder == "greedy":
        why = "the greedy decoder keeps one path"
    elif searcher.run is None:
        why = "an attention decoder's beam keeps hypotheses and no lattice"
    raise InvalidRequest(
        f"{'alternatives' if request.alternatives else 'lattice'}: {why}; alternatives and lattices need the "
        "beam decoder of a tdt, rnnt or ctc head"
        + (", with the best alignment of each hypothesis" if searcher.sums else "")
    )


def can_fuse(searcher: Searcher, options: SearchOptions) -> bool:
    """Whether the search takes a language model and phrases."""
    return searcher.fuses and options.graph is None


def cannot_fuse(head: HeadName, options: SearchOptions, requests: Sequence[DecodeRequest]) -> InvalidRequest:
    """The refusal of a language model or phrases, with the names of what was asked for."""
    if options.graph is not None:
        return InvalidRequest("graph: its search takes no language model and no phrases")
    asked = {
        "language_model": any(request.lm for request in requests),
        "boost": any(request.phrases for request in requests),
    }
    if head == "ctc":
        why = "a CTC head takes a language model or phrases with the beam decoder only"
    else:
        why = f"the {options.decoder} search of {describe_head(head)} takes no language model and no phrases"
    return InvalidRequest(f"{', '.join(name for name, given in asked.items() if given)}: {why}")


def check_context(model: SpeechModel, options: SearchOptions) -> None:
    """Raise InvalidRequest if the model cannot run with the requested attention context."""
    known = model.capabilities.att_contexts
    if options.att_context is None or options.att_context in known:
        return
    left, right = options.att_context
    setting = f"att_context {left},{right}"
    if model.capabilities.any_context:
        if left >= -1 and right >= 0:
            return
        raise InvalidRequest(f"{setting}: neither may be negative, except a left of -1 (all frames)")
    if not known:
        raise InvalidRequest(f"{setting}: {model.info.name} has no choice of attention contexts")
    names = " ".join(f"{left},{right}" for left, right in known)
    raise InvalidRequest(f"{setting}: {model.info.name} was trained for {names}")
