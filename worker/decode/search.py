"""The one face of the search: a batch of encoder frames in, hypotheses of each utterance out.

Knows which search fits which head. Chunks, words and seconds are others' business.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx
import numpy as np

from spool.errors import EngineError, InvalidRequest
from worker.decode.ctc.beam import ctc_beam_search
from worker.decode.ctc.greedy import ctc_greedy
from worker.decode.fusion.fusion import Fusion, Speller, make_fusion
from worker.decode.recorder import LatticeRecorder
from worker.decode.transducer.beam import beam_search
from worker.decode.transducer.greedy import greedy_search
from worker.decode.types import DecodeRequest, Hypothesis, SearchOptions
from worker.models.heads.ctc import CtcHead
from worker.models.heads.transducer import Transducer

PREFERENCE = ("tdt", "rnnt", "ctc")
GREEDY_LATTICE = "the greedy decoder knows one path; alternatives and lattices need the beam decoder"
GREEDY_CTC = "a CTC head takes a language model or phrases with the beam decoder only"


class Searchable(Protocol):
    """What the search asks of a model."""

    @property
    def heads(self) -> frozenset[str]:
        """Those of tdt, rnnt and ctc that it has."""

    @property
    def transducer(self) -> Transducer | None:
        """Prediction network and joint, when it has a TDT or RNNT head."""

    @property
    def ctc(self) -> CtcHead | None:
        """The CTC head, when it has one."""

    @property
    def tokenizer(self) -> Speller:
        """Its tokens; asked where the options fuse something."""


class EncodedBatch(Protocol):
    """What the search asks of encoded audio: frames [B, T, d_model] and the valid lengths, int32 [B]."""

    @property
    def frames(self) -> mx.array:
        """[B, T, d_model]."""

    @property
    def lengths(self) -> np.ndarray:
        """[B], 0 to T."""


def search(
    model: Searchable,
    encoded: EncodedBatch,
    options: SearchOptions,
    asks: Sequence[DecodeRequest] | None = None,
    keeper: LatticeRecorder | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each utterance, best first, at most `options.nbest` of them.

    keeper: keeps what a beam did on the way to them.
    asks: what each utterance asks for itself, as many as there are utterances; what its neighbours ask is
    nothing to it. To carry a job's language model and phrases over its chunks, give a chunk the context
    `carried(ask.context, best)` of the one before it.

    An utterance depends on its own frames alone: one without frames has one empty hypothesis, and one whose
    logits are not finite (NaN) has an empty list, its neighbours untouched; `best_of` turns that into an
    error. Greedy knows one hypothesis. Raises InvalidRequest where the options ask what the model or this
    version cannot do.
    """
    head = resolve_head(model, options)
    lengths = np.asarray(encoded.lengths, dtype=np.int32)
    if asks is not None and len(asks) != len(lengths):
        raise ValueError(f"{len(asks)} asks for {len(lengths)} utterances")
    for ask in asks or ():
        check_ask(options, ask)
    fusion = None
    if options.fusion is not None or asks is not None:
        each = [DecodeRequest()] * len(lengths) if asks is None else asks
        fusion = make_fusion(model.tokenizer, options.fusion, each)
    if head == "ctc":
        assert model.ctc is not None
        found = _search_ctc(model.ctc, encoded.frames, lengths, options, fusion, keeper)
    else:
        assert model.transducer is not None
        found = _search_transducer(model.transducer, encoded.frames, lengths, options, fusion, keeper)
    return [hypotheses[: options.nbest] for hypotheses in found]


def _search_ctc(
    head: CtcHead,
    frames: mx.array,
    lengths: np.ndarray,
    options: SearchOptions,
    fusion: Fusion | None,
    keeper: LatticeRecorder | None,
) -> list[list[Hypothesis]]:
    log_probs, fixed = _log_probs(head, frames, lengths), options.scores == "fixed"
    if options.decoder == "beam":
        return ctc_beam_search(
            log_probs, lengths, head.blank, options.beam, fusion, keeper, options.beta, fixed=fixed
        )
    if fusion is not None:
        raise InvalidRequest(GREEDY_CTC)
    return ctc_greedy(log_probs, lengths, head.blank, fixed=fixed)


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


def _search_transducer(
    transducer: Transducer,
    frames: mx.array,
    lengths: np.ndarray,
    options: SearchOptions,
    fusion: Fusion | None,
    keeper: LatticeRecorder | None,
) -> list[list[Hypothesis]]:
    fixed = options.scores == "fixed"
    if options.decoder == "beam":
        return beam_search(
            transducer, frames, lengths, options.beam, options.max_symbols, fusion, keeper, fixed=fixed
        )
    return greedy_search(transducer, frames, lengths, options.max_symbols, fusion, fixed=fixed)


def best_of(hypotheses: Sequence[Hypothesis]) -> Hypothesis:
    """The first of an utterance's hypotheses. Raises EngineError when the search gave the utterance up."""
    if not hypotheses:
        raise EngineError("the model's output for this utterance is not a number; its words are unknown")
    return hypotheses[0]


def check_ask(options: SearchOptions, ask: DecodeRequest) -> None:
    """Raises InvalidRequest where the decoder cannot answer what is asked of it beyond its hypotheses."""
    if ask.alternatives < 0 or not (ask.lattice is None or 0 <= ask.lattice < math.inf):
        raise InvalidRequest("alternatives and what a lattice is pruned to must not be below 0")
    if options.decoder == "greedy" and (ask.alternatives or ask.lattice is not None):
        raise InvalidRequest(GREEDY_LATTICE)


def check_options(model: Searchable, options: SearchOptions, ask: DecodeRequest | None = None) -> None:
    """Raises InvalidRequest, before any audio, where `search` would: no such head, a broken file."""
    head = resolve_head(model, options)
    if ask is not None:
        check_ask(options, ask)
    if options.fusion is not None or ask is not None:
        fusion = make_fusion(model.tokenizer, options.fusion, [ask or DecodeRequest()])
        if fusion is not None and head == "ctc" and options.decoder == "greedy":
            raise InvalidRequest(GREEDY_CTC)


def resolve_head(model: Searchable, options: SearchOptions) -> str:
    """Which head these options search: tdt, rnnt or ctc. Raises InvalidRequest."""
    if options.beam < 1 or options.nbest < 1 or options.max_symbols < 1:
        raise InvalidRequest("beam, nbest and max_symbols must be at least 1")
    if options.decoder not in ("greedy", "beam"):
        raise InvalidRequest(f"unknown decoder {options.decoder!r}: greedy or beam")
    if options.head == "auto":
        head = next((name for name in PREFERENCE if name in model.heads), None)
    else:
        head = options.head if options.head in model.heads else None
    if head is None:
        has = ", ".join(sorted(model.heads)) or "none that can be searched"
        raise InvalidRequest(f"the model has no {options.head} head; it has: {has}")
    if options.scores not in ("float", "fixed"):
        raise InvalidRequest(f"unknown scores {options.scores!r}: float or fixed")
    if not math.isfinite(options.beta):
        raise InvalidRequest("beta must be a finite number")
    if options.beta and (head != "ctc" or options.decoder != "beam"):
        raise InvalidRequest("beta is for the beam of a CTC head")
    return head
