"""What a search refuses, before any audio. Knows what each search takes; runs none."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from spool.domain.declaration import declaration_of
from spool.domain.options import AskedOptions
from spool.domain.search.searches import CTC_PREFIXES, FUSING, Search
from spool.errors import InvalidRequest
from worker.decode.fusion.fusion import Speller
from worker.decode.wfst.graph import check_units, load_graph, unit_columns
from worker.models.base import HeadName, SpeechModel
from worker.models.requests import DecodeRequest, SearchOptions

COMMON = frozenset({"decoder", "beam", "nbest", "head", "att_context", "reader"})
"""Options that every search understands: greedy is a beam of one, and has one hypothesis."""


def takes(search: Search, name: str) -> bool:
    """Whether a search takes an option of jobs, by the option's declaration."""
    option = declaration_of(AskedOptions, name)
    return option is not None and (not option.searches or search in option.searches)


class Searchable(Protocol):
    """What the search needs of a model."""

    @property
    def heads(self) -> Mapping[HeadName, Any]:
        """Transducers, CTC heads and attention decoders, by name."""

    @property
    def tokenizer(self) -> Speller:
        """The tokenizer, used for fusion."""


def refuse_others(search: Search, options: SearchOptions) -> None:
    """Raise InvalidRequest for an option that the search does not understand."""
    own = [name for name in SearchOptions.model_fields if name not in COMMON]
    taken = sorted(name for name in own if takes(search, name))
    for name in own:
        if name not in taken and getattr(options, name) != SearchOptions.model_fields[name].default:
            raise InvalidRequest(
                f"{name}: the {options.decoder} search of {describe_head(search.head)} has no such "
                f"parameter; it has: {', '.join(taken) or 'none'}"
            )


def describe_head(head: HeadName) -> str:
    """The head with its article."""
    return f"{'an' if head.startswith(('attention', 'rnnt')) else 'a'} {head} head"


def check_graph(model: Searchable, options: SearchOptions) -> None:
    """Raise InvalidRequest if a graph is needed and there is none, or it is not for this model."""
    if options.graph is None:
        if options.decoder == "wfst":
            raise InvalidRequest("graph: the wfst search needs a decoding graph (spool graph build)")
        return
    graph, ctc = load_graph(options.graph.name).arrays, model.heads["ctc"]
    check_units(graph, model.tokenizer.pieces)
    unit_columns(graph, ctc.blank, blank_unit=ctc.blank_unit)


def check_request(search: Search, options: SearchOptions, request: DecodeRequest) -> None:
    """Raise InvalidRequest where the search cannot answer what is asked of it beyond its hypotheses."""
    if request.alternatives < 0 or not (request.lattice is None or 0 <= request.lattice < math.inf):
        raise InvalidRequest("alternatives and what a lattice is pruned to must not be below 0")
    if options.decoder == "wfst" and request.alternatives:
        raise InvalidRequest("alternatives: a graph search yields none; request its lattice")
    if takes(search, "lattice") or not (request.alternatives or request.lattice is not None):
        return
    why = "it keeps no lattice"
    if options.decoder == "greedy":
        why = "the greedy decoder keeps one path"
    elif search.head == "attention":
        why = "an attention decoder's beam keeps hypotheses and no lattice"
    raise InvalidRequest(
        f"{'alternatives' if request.alternatives else 'lattice'}: {why}; alternatives and lattices need the "
        "beam decoder of a tdt, rnnt or ctc head"
        + (", with the best alignment of each hypothesis" if search == CTC_PREFIXES else "")
    )


def can_fuse(search: Search, options: SearchOptions) -> bool:
    """Whether the search takes a language model and phrases."""
    return search in FUSING and options.graph is None


def cannot_fuse(head: HeadName, options: SearchOptions, requests: Sequence[DecodeRequest]) -> InvalidRequest:
    """The refusal of a language model or phrases, with the names of what was asked for."""
    if options.graph is not None:
        return InvalidRequest("graph: its search takes no language model and no phrases")
    asked = {
        "language_model": any(request.language_model for request in requests),
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
