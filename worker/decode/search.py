"""The one face of the search: a batch of encoder frames in, hypotheses of each utterance out.

Owns which search fits which head and which parameters it takes. Chunks, words and seconds are others'
business; so are attention decoders' windows (`worker.decode.attention`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from spool.errors import EngineError, InvalidRequest
from worker.decode.ctc.beam import ctc_beam_search
from worker.decode.ctc.greedy import ctc_greedy
from worker.decode.fusion.fusion import Fusion, Speller, make_fusion
from worker.decode.recorder import LatticeRecorder
from worker.decode.transducer.beam import beam_search
from worker.decode.transducer.greedy import greedy_search
from worker.decode.types import DecodeRequest, Hypothesis, Scores, SearchOptions
from worker.models.base import Encoded, HeadName
from worker.models.heads.ctc import CtcHead
from worker.models.heads.transducer import Transducer

Hypotheses = list[list[Hypothesis]]


@dataclass(frozen=True, slots=True)
class TransducerGreedy:
    """Parameters; see `SearchOptions`."""

    max_symbols: int
    scores: Scores


@dataclass(frozen=True, slots=True)
class TransducerBeam:
    """Parameters; see `SearchOptions`."""

    beam: int
    max_symbols: int
    scores: Scores


@dataclass(frozen=True, slots=True)
class CtcGreedy:
    """Parameters; see `SearchOptions`."""

    max_symbols: int  # without meaning here, as CTC emits at most one symbol a frame
    scores: Scores


@dataclass(frozen=True, slots=True)
class CtcBeam:
    """Parameters; see `SearchOptions`."""

    beam: int
    max_symbols: int  # as for greedy
    beta: float
    scores: Scores


@dataclass(frozen=True, slots=True)
class AttentionGreedy:
    """No parameters."""


@dataclass(frozen=True, slots=True)
class AttentionBeam:
    """Parameters; see `worker.decode.attention.beam.BeamSettings`."""

    beam: int
    patience: float
    length_penalty: float | None


@dataclass(frozen=True, slots=True)
class Searcher:
    """One way to search one kind of head.

    parameters: the dataclass of what it takes of `SearchOptions`. run: head, frames [B, T, d_model], lengths
    [B], parameters, fusion and recorder to hypotheses; None where it asks the model more than frames. fuses:
    whether a language model and phrases may have a say. lattices: whether it keeps more than its hypotheses.
    """

    parameters: type[Any]
    run: Callable[..., Hypotheses] | None
    fuses: bool
    lattices: bool


class Searchable(Protocol):
    """What the search asks of a model."""

    @property
    def heads(self) -> Mapping[HeadName, Any]:
        """Transducers, CTC heads and attention decoders, by name."""

    @property
    def tokenizer(self) -> Speller:
        """Its tokens; asked where the options fuse something."""


def search(
    model: Searchable,
    encoded: Encoded,
    options: SearchOptions,
    asks: Sequence[DecodeRequest] | None = None,
    keeper: LatticeRecorder | None = None,
) -> Hypotheses:
    """The hypotheses of each utterance, best first, at most `options.nbest` of them.

    keeper: keeps what a beam did on the way to them.
    asks: what each utterance asks for itself, as many as there are utterances; what its neighbours ask is
    nothing to it. To carry a job's language model and phrases over its chunks, give a chunk the context of
    the one before it and that one's best tokens behind it.

    An utterance depends on its own frames alone: one without frames has one empty hypothesis, and one whose
    logits are not finite (NaN) has an empty list, its neighbours untouched; `best_of` turns that into an
    error. Greedy knows one hypothesis. Raises InvalidRequest where the options ask what the model or this
    version cannot do.
    """
    head, searcher, parameters = resolve_search(model, options)
    lengths = np.asarray(encoded.lengths, dtype=np.int32)
    if asks is not None and len(asks) != len(lengths):
        raise ValueError(f"{len(asks)} asks for {len(lengths)} utterances")
    for ask in asks or ():
        check_request(head, options, ask)
    fusion = None
    if options.fusion is not None or asks is not None:
        each = [DecodeRequest()] * len(lengths) if asks is None else asks
        fusion = make_fusion(model.tokenizer, options.fusion, each)
    if searcher.run is None:
        raise InvalidRequest(f"a {head} head is not searched over frames alone")
    if fusion is not None and not searcher.fuses:
        raise InvalidRequest(cannot_fuse(head, options))
    hypotheses = searcher.run(model.heads[head], encoded.frames, lengths, parameters, fusion, keeper)
    return [each_found[: options.nbest] for each_found in hypotheses]


def _transducer_greedy(
    head: Transducer,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: TransducerGreedy,
    fusion: Fusion | None,
    _: LatticeRecorder | None,
) -> Hypotheses:
    fixed = parameters.scores == "fixed"
    return greedy_search(head, frames, lengths, parameters.max_symbols, fusion, fixed=fixed)


def _transducer_beam(
    head: Transducer,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: TransducerBeam,
    fusion: Fusion | None,
    recorder: LatticeRecorder | None,
) -> Hypotheses:
    fixed = parameters.scores == "fixed"
    return beam_search(
        head, frames, lengths, parameters.beam, parameters.max_symbols, fusion, recorder, fixed=fixed
    )


def _ctc_greedy(
    head: CtcHead,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: CtcGreedy,
    _: Fusion | None,
    __: LatticeRecorder | None,
) -> Hypotheses:
    fixed = parameters.scores == "fixed"
    return ctc_greedy(_log_probs(head, frames, lengths), lengths, head.blank, fixed=fixed)


def _ctc_beam(
    head: CtcHead,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: CtcBeam,
    fusion: Fusion | None,
    recorder: LatticeRecorder | None,
) -> Hypotheses:
    log_probs, fixed = _log_probs(head, frames, lengths), parameters.scores == "fixed"
    return ctc_beam_search(
        log_probs, lengths, head.blank, parameters.beam, fusion, recorder, parameters.beta, fixed=fixed
    )


def _log_probs(head: CtcHead, frames: mx.array, lengths: np.ndarray) -> mx.array:
    """The head's log-probabilities [B, T, V + 1]. On a CPU each utterance by itself, zeros behind its end:
    the bits of a product depend on its number of rows there, and must not on the neighbours."""
    if mx.default_device().type != mx.DeviceType.cpu or frames.shape[1] == 0:
        return head.log_probs(frames)
    longest = frames.shape[1]
    rows = [
        mx.pad(head.log_probs(frames[row, :length]), [(0, longest - length), (0, 0)])
        if length
        else mx.zeros((longest, head.blank + 1))
        for row, length in enumerate(lengths.tolist())
    ]
    return mx.stack(rows)


def best_of(hypotheses: Sequence[Hypothesis]) -> Hypothesis:
    """The first of an utterance's hypotheses. Raises EngineError when the search gave the utterance up."""
    if not hypotheses:
        raise EngineError("the model's output for this utterance is not a number; its words are unknown")
    return hypotheses[0]


SEARCHERS: dict[tuple[HeadName, str], Searcher] = {
    ("tdt", "greedy"): Searcher(TransducerGreedy, _transducer_greedy, fuses=True, lattices=False),
    ("tdt", "beam"): Searcher(TransducerBeam, _transducer_beam, fuses=True, lattices=True),
    ("rnnt", "greedy"): Searcher(TransducerGreedy, _transducer_greedy, fuses=True, lattices=False),
    ("rnnt", "beam"): Searcher(TransducerBeam, _transducer_beam, fuses=True, lattices=True),
    ("ctc", "greedy"): Searcher(CtcGreedy, _ctc_greedy, fuses=False, lattices=False),
    ("ctc", "beam"): Searcher(CtcBeam, _ctc_beam, fuses=True, lattices=True),
    ("attention", "greedy"): Searcher(AttentionGreedy, None, fuses=False, lattices=False),
    ("attention", "beam"): Searcher(AttentionBeam, None, fuses=False, lattices=False),
}
"""Every search there is; a model's heads are tried in this order where the options name none."""
COMMON = frozenset({"decoder", "beam", "nbest", "head", "fusion"})
"""Options that every search understands: greedy is a beam of one, and has one hypothesis."""


def resolve_search(model: Searchable, options: SearchOptions) -> tuple[HeadName, Searcher, Any]:
    """Which head these options search, how, and the parameters of that search. Raises InvalidRequest."""
    if options.beam < 1 or options.nbest < 1 or options.max_symbols < 1:
        raise InvalidRequest("beam, nbest and max_symbols must be at least 1")
    head = resolve_head(model, options)
    searcher = SEARCHERS.get((head, options.decoder))
    if searcher is None:
        known = ", ".join(decoder for name, decoder in SEARCHERS if name == head)
        raise InvalidRequest(f"unknown decoder {options.decoder!r} for a {head} head: {known}")
    if options.scores not in ("float", "fixed"):
        raise InvalidRequest(f"unknown scores {options.scores!r}: float or fixed")
    for name in ("beta", "patience", "length_penalty"):
        if not math.isfinite(getattr(options, name) or 0.0):
            raise InvalidRequest(f"{name} must be a finite number")
    return head, searcher, _parameters(head, searcher, options)


def resolve_head(model: Searchable, options: SearchOptions) -> HeadName:
    """Which of the model's heads these options search. Raises InvalidRequest."""
    wanted = [head for head, _ in SEARCHERS if options.head in ("auto", head) and head in model.heads]
    if not wanted:
        has = ", ".join(sorted(model.heads)) or "none that can be searched"
        raise InvalidRequest(f"the model has no {options.head} head; it has: {has}")
    return wanted[0]


def _parameters(head: HeadName, searcher: Searcher, options: SearchOptions) -> Any:  # noqa: ANN401
    names = {field.name for field in fields(searcher.parameters)}
    for field in fields(SearchOptions):
        value = getattr(options, field.name)
        if field.name not in names | COMMON and value != field.default:
            takes = ", ".join(sorted(names)) or "none"
            raise InvalidRequest(
                f"{field.name}: the {options.decoder} search of a {head} head has no such parameter; "
                f"it has: {takes}"
            )
    return searcher.parameters(**{name: getattr(options, name) for name in names})


def check_request(head: HeadName, options: SearchOptions, request: DecodeRequest) -> None:
    """Raises InvalidRequest where the search cannot answer what is asked of it beyond its hypotheses."""
    if request.alternatives < 0 or not (request.lattice is None or 0 <= request.lattice < math.inf):
        raise InvalidRequest("alternatives and what a lattice is pruned to must not be below 0")
    searcher = SEARCHERS[head, options.decoder]
    if not searcher.lattices and (request.alternatives or request.lattice is not None):
        name = "alternatives" if request.alternatives else "lattice"
        kept = "the greedy decoder knows one path" if options.decoder == "greedy" else "it keeps no lattice"
        able = ", ".join(each for (each, _), searcher in SEARCHERS.items() if searcher.lattices)
        raise InvalidRequest(f"{name}: {kept}; alternatives and lattices need the beam decoder of {able}")


def cannot_fuse(head: HeadName, options: SearchOptions) -> str:
    """Why these options take no language model and no phrases."""
    if head == "ctc":
        return "a CTC head takes a language model or phrases with the beam decoder only"
    return f"the {options.decoder} search of a {head} head takes no language model and no phrases"


def check_options(model: Searchable, options: SearchOptions, request: DecodeRequest | None = None) -> None:
    """Raises InvalidRequest, before any audio, where `search` would: no such head, a broken file."""
    head, searcher, _ = resolve_search(model, options)
    if request is not None:
        check_request(head, options, request)
    if options.fusion is None and request is None:
        return
    request = request or DecodeRequest()
    if not searcher.fuses and (request.lm or request.phrases or (options.fusion and options.fusion.asks)):
        raise InvalidRequest(cannot_fuse(head, options))
    if searcher.fuses:
        make_fusion(model.tokenizer, options.fusion, [request])
