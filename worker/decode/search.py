"""The entry point of the searches: a batch of encoder frames in, hypotheses of each utterance out.

Chooses the search for a head and checks its parameters. Attention decoders' windows are in
`worker.decode.attention`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

import numpy as np

from kernels.search.wfst import MAX_BEAM
from spool.domain.recognition import Hypothesis
from spool.errors import EngineError, InvalidRequest
from spool.graphs.arrays import MOST_WEIGHT
from worker.decode.attention.rescore import check_weights
from worker.decode.fusion.fusion import Speller, make_fusion
from worker.decode.recorder import LatticeRecorder
from worker.decode.searchers import (
    COMMON,
    CTC_PREFIX,
    FRAME_BEAM,
    SEARCHERS,
    Hypotheses,
    Searcher,
    SearchInput,
    rescoring_weights,
    transducer_weights,
)
from worker.decode.types import DecodeRequest, SearchOptions
from worker.decode.wfst.graph import check_units, load_graph, unit_columns
from worker.models.base import Encoded, HeadName

MOST_SCALE = 100.0
"""The largest acoustic_scale."""


class Searchable(Protocol):
    """What the search needs of a model."""

    @property
    def heads(self) -> Mapping[HeadName, Any]:
        """Transducers, CTC heads and attention decoders, by name."""

    @property
    def tokenizer(self) -> Speller:
        """The tokenizer, used for fusion."""


def search(
    model: Searchable,
    encoded: Encoded,
    options: SearchOptions,
    requests: Sequence[DecodeRequest] | None = None,
    recorder: LatticeRecorder | None = None,
) -> Hypotheses:
    """The hypotheses of each utterance, best first, at most `options.nbest` of them.

    recorder: records a beam's steps. requests: one per utterance, independent of each other. To carry a job's
    language model and phrases over its chunks, a chunk's context is that of the chunk before it followed by
    that chunk's best tokens.

    An utterance depends on its own frames only: one without frames has one empty hypothesis, and one whose
    logits are not finite has an empty list, which `best_of` turns into an error. Greedy search has one
    hypothesis. Raises InvalidRequest if the model or this version does not support the options.
    """
    head, searcher = resolve_search(model, options)
    lengths = np.asarray(encoded.lengths, dtype=np.int32)
    if requests is not None and len(requests) != len(lengths):
        raise ValueError(f"{len(requests)} requests for {len(lengths)} utterances")
    for request in requests or ():
        check_request(searcher, options, request)
    fusion = None if requests is None else make_fusion(model.tokenizer, options, requests)
    if searcher.run is None:
        raise InvalidRequest(f"{_describe_head(head)} is not searched over frames alone")
    if fusion is not None and (options.graph is not None or not searcher.fuses):
        raise InvalidRequest(cannot_fuse(head, options, requests or ()))
    batch = SearchInput(model.heads[head], encoded.frames, lengths, options, fusion, recorder)
    hypotheses = searcher.run(batch)
    return [nbest[: options.nbest] for nbest in hypotheses]


def best_of(hypotheses: Sequence[Hypothesis]) -> Hypothesis:
    """The first of an utterance's hypotheses. Raises EngineError if it has none."""
    if not hypotheses:
        raise EngineError("the model's output for this utterance is not finite, so it has no words")
    return hypotheses[0]


def resolve_search(model: Searchable, options: SearchOptions) -> tuple[HeadName, Searcher]:
    """The head that these options search, and the searcher. Raises InvalidRequest."""
    if options.beam < 1 or options.nbest < 1 or (options.max_symbols or 1) < 1:
        raise InvalidRequest("beam, nbest and max_symbols must be at least 1")
    head = resolve_head(model, options)
    searcher = _variant(model, head, options)
    if options.pruning not in ("late", "early"):
        raise InvalidRequest(f"unknown pruning {options.pruning!r}: late or early")
    if options.scores not in ("float", "fixed"):
        raise InvalidRequest(f"unknown scores {options.scores!r}: float or fixed")
    if not 0 <= options.blank_penalty < math.inf:
        raise InvalidRequest("blank_penalty must be a finite number and not below 0")
    names = (
        "beta",
        "patience",
        "length_penalty",
        "ctc_weight",
        "reverse_weight",
        "attention_weight",
        "transducer_weight",
        "search_ctc_weight",
        *_OF_GRAPHS,
    )
    for name in names:
        if not math.isfinite(getattr(options, name) or 0.0):
            raise InvalidRequest(f"{name} must be a finite number")
    _refuse_others(head, searcher, options)
    if not 0 <= options.search_ctc_weight < 1:
        raise InvalidRequest("search_ctc_weight must be at least 0 and below 1")
    if head == "ctc+attention" and options.decoder == "rescore":
        check_weights(model.heads[head], rescoring_weights(options))
    if head == "rnnt+attention":
        check_weights(model.heads[head], transducer_weights(options))
    if "graph" in searcher.takes:
        _check_graph(model, options)
    return head, searcher


_OF_GRAPHS = ("graph_beam", "lattice_beam", "blank_skip", "acoustic_scale")


def _check_graph(model: Searchable, options: SearchOptions) -> None:
    """Raise InvalidRequest if there is no graph, it is not for this model, or a beam is out of range."""
    if options.graph is None:
        if options.decoder == "wfst":
            raise InvalidRequest("graph: the wfst search needs a decoding graph (spool graph build)")
        defaults = SearchOptions()
        for name in ("max_active", *_OF_GRAPHS, "length_penalty"):
            if getattr(options, name) != getattr(defaults, name):
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
    graph = load_graph(options.graph).arrays
    check_units(graph, model.tokenizer.pieces)
    ctc = model.heads["ctc"]
    unit_columns(graph, ctc.blank, blank_first=ctc.blank_first)


def _variant(model: Searchable, head: HeadName, options: SearchOptions) -> Searcher:
    """The searcher of these options, or the variant of it for this model. Raises InvalidRequest."""
    searcher = SEARCHERS.get((head, options.decoder))
    if searcher is None:
        known = ", ".join(decoder for name, decoder in SEARCHERS if name == head)
        raise InvalidRequest(f"unknown decoder {options.decoder!r} for {_describe_head(head)}: {known}")
    if options.alignments not in ("auto", "best", "all"):
        raise InvalidRequest(f"unknown alignments {options.alignments!r}: auto, best or all")
    if (head, options.decoder) == ("ctc", "beam"):
        sums = options.alignments == "all" or (options.alignments == "auto" and model.heads["ctc"].sums)
        return CTC_PREFIX if sums else searcher
    if (head, options.decoder) == ("rnnt", "beam") and model.heads["rnnt"].ctc is not None:
        if not 0 <= (options.ctc_weight or 0.0) < 1:
            raise InvalidRequest("ctc_weight of a transducer's beam must be at least 0 and below 1")
        return FRAME_BEAM
    return searcher


def resolve_head(model: Searchable, options: SearchOptions) -> HeadName:
    """The head of the model that these options search. Raises InvalidRequest."""
    fitting = [
        (head, decoder)
        for head, decoder in SEARCHERS
        if head in model.heads and options.head in ("auto", head, *head.split("+"))
    ]
    if not fitting:
        has = ", ".join(sorted(model.heads)) or "none that can be searched"
        raise InvalidRequest(f"the model has no {options.head} head; it has: {has}")
    return next((head for head, decoder in fitting if decoder == options.decoder), fitting[0][0])


def _refuse_others(head: HeadName, searcher: Searcher, options: SearchOptions) -> None:
    """Raise InvalidRequest for an option that the search does not understand."""
    for field in fields(SearchOptions):
        if field.name not in searcher.takes | COMMON and getattr(options, field.name) != field.default:
            takes = ", ".join(sorted(searcher.takes)) or "none"
            raise InvalidRequest(
                f"{field.name}: the {options.decoder} search of {_describe_head(head)} has no such "
                f"parameter; it has: {takes}"
            )


def _describe_head(head: HeadName) -> str:
    return f"{'an' if head.startswith(('attention', 'rnnt')) else 'a'} {head} head"


def check_request(searcher: Searcher, options: SearchOptions, request: DecodeRequest) -> None:
    """Raises InvalidRequest where the search cannot answer what is asked of it beyond its hypotheses."""
    if request.alternatives < 0 or not (request.lattice is None or 0 <= request.lattice < math.inf):
        raise InvalidRequest("alternatives and what a lattice is pruned to must not be below 0")
    if options.decoder == "wfst" and request.alternatives:
        raise InvalidRequest("alternatives: a graph search yields none; request its lattice")
    if not searcher.lattices and (request.alternatives or request.lattice is not None):
        name = "alternatives" if request.alternatives else "lattice"
        *others, last = dict.fromkeys(each for (each, _), known in SEARCHERS.items() if known.lattices)
        raise InvalidRequest(
            f"{name}: {_no_lattice(searcher, options)}; alternatives and lattices need the beam decoder of a "
            f"{', '.join(others)} or {last} head"
            + (", with the best alignment of each hypothesis" if searcher is CTC_PREFIX else "")
        )


def _no_lattice(searcher: Searcher, options: SearchOptions) -> str:
    if options.decoder == "greedy":
        return "the greedy decoder keeps one path"
    if searcher.run is None:
        return "an attention decoder's beam keeps hypotheses and no lattice"
    return "it keeps no lattice"


def cannot_fuse(head: HeadName, options: SearchOptions, requests: Sequence[DecodeRequest]) -> str:
    """Why these options take no language model and no phrases, with the names of what was asked for."""
    if options.graph is not None:
        return "graph: its search takes no language model and no phrases"
    asked = [
        name
        for name, given in (
            ("language_model", any(request.lm for request in requests)),
            ("boost", any(request.phrases for request in requests)),
        )
        if given
    ]
    if head == "ctc":
        why = "a CTC head takes a language model or phrases with the beam decoder only"
    else:
        why = f"the {options.decoder} search of {_describe_head(head)} takes no language model and no phrases"
    return f"{', '.join(asked)}: {why}"


def check_options(model: Searchable, options: SearchOptions, request: DecodeRequest | None = None) -> None:
    """Raises InvalidRequest, before any audio, where `search` would: no such head, a broken file."""
    head, searcher = resolve_search(model, options)
    if request is not None:
        check_request(searcher, options, request)
    if request is None:
        return
    able = searcher.fuses and options.graph is None
    if not able and (request.lm or request.phrases):
        raise InvalidRequest(cannot_fuse(head, options, [request]))
    if able:
        make_fusion(model.tokenizer, options, [request])
