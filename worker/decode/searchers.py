"""All searches by head: their parameters, and adapters to one signature. `worker.decode.search` chooses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from worker.decode.alignment.viterbi import align_tokens
from worker.decode.attention.lockstep import Ended, attention_beam
from worker.decode.attention.rescore import HybridHead, RescoringWeights, rescore
from worker.decode.ctc.beam import ctc_beam_search
from worker.decode.ctc.greedy import ctc_greedy
from worker.decode.ctc.prefix import ctc_prefix_search
from worker.decode.fusion.fusion import Fusion
from worker.decode.recorder import LatticeRecorder
from worker.decode.transducer.beam import beam_search
from worker.decode.transducer.frame_beam import frame_beam_search
from worker.decode.transducer.greedy import greedy_search
from worker.decode.types import Alignments, Hypothesis, Pruning, Scores
from worker.decode.wfst.graph import load_graph
from worker.decode.wfst.search import WfstSettings, wfst_search
from worker.models.base import HeadName
from worker.models.heads.ctc import CtcHead
from worker.models.heads.transducer import Transducer

Hypotheses = list[list[Hypothesis]]


@dataclass(frozen=True, slots=True)
class TransducerGreedy:
    """Parameters; see `SearchOptions`."""

    max_symbols: int | None
    scores: Scores


@dataclass(frozen=True, slots=True)
class TransducerBeam:
    """Parameters; see `SearchOptions`."""

    beam: int
    max_symbols: int | None
    lm_blanks: bool
    pruning: Pruning
    scores: Scores


@dataclass(frozen=True, slots=True)
class CtcGreedy:
    """Parameters; see `SearchOptions`."""

    max_symbols: int | None  # without meaning here, as CTC emits at most one symbol a frame
    blank_penalty: float
    scores: Scores


@dataclass(frozen=True, slots=True)
class CtcBeam:
    """Parameters; see `SearchOptions`."""

    beam: int
    max_symbols: int | None  # as for greedy
    beta: float
    alignments: Alignments
    blank_penalty: float
    scores: Scores


@dataclass(frozen=True, slots=True)
class FrameBeam:
    """Parameters; see `worker.decode.transducer.frame_beam`."""

    beam: int
    ctc_weight: float | None


@dataclass(frozen=True, slots=True)
class GraphSearch:
    """Parameters; see `worker.decode.wfst.search.WfstSettings`."""

    beam: int
    graph: str | None
    graph_beam: float
    max_active: int
    lattice_beam: float
    blank_skip: float
    acoustic_scale: float
    length_penalty: float | None
    blank_penalty: float

    @property
    def settings(self) -> WfstSettings:
        """The settings without the graph and the number of hypotheses."""
        return WfstSettings(
            *(self.graph_beam, self.max_active, self.lattice_beam, self.blank_skip, self.acoustic_scale),
            self.length_penalty or 0.0,
        )


@dataclass(frozen=True, slots=True)
class Rescoring(GraphSearch):
    """Parameters; see `worker.decode.attention.rescore`. With a graph its search makes the list."""

    beta: float
    scores: Scores
    ctc_weight: float | None
    reverse_weight: float | None
    attention_weight: float

    @property
    def weights(self) -> RescoringWeights:
        """The weights, with defaults for those not given."""
        given = {"ctc": self.ctc_weight, "reverse": self.reverse_weight, "attention": self.attention_weight}
        return RescoringWeights(**{name: weight for name, weight in given.items() if weight is not None})


@dataclass(frozen=True, slots=True)
class TransducerRescoring:
    """Parameters; see `worker.decode.attention.rescore`. search_ctc_weight: of the CTC head in the beam that
    makes the list."""

    beam: int
    ctc_weight: float | None
    reverse_weight: float | None
    attention_weight: float
    transducer_weight: float
    search_ctc_weight: float

    @property
    def weights(self) -> RescoringWeights:
        """The weights; the beam's own score and the right-to-left decoder count only if given."""
        return RescoringWeights(
            self.ctc_weight or 0.0, self.reverse_weight or 0.0, self.transducer_weight, self.attention_weight
        )


@dataclass(frozen=True, slots=True)
class LockstepBeam:
    """Parameters; see `worker.decode.attention.lockstep`."""

    beam: int
    length_penalty: float | None


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

    parameters: the dataclass of its part of `SearchOptions`. run: from head, frames [B, T, d_model], lengths
    [B], parameters, fusion and recorder to hypotheses; None if the search needs more than frames. fuses:
    whether it supports a language model and phrases. lattices: whether it supports lattices.
    """

    parameters: type[Any]
    run: Callable[..., Hypotheses] | None
    fuses: bool
    lattices: bool


def _transducer_greedy(
    head: Transducer,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: TransducerGreedy,
    fusion: Fusion | None,
    _: LatticeRecorder | None,
) -> Hypotheses:
    fixed = parameters.scores == "fixed"
    return greedy_search(head, frames, lengths, _most_symbols(head, parameters), fusion, fixed=fixed)


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
        head, frames, lengths, parameters.beam, _most_symbols(head, parameters), fusion, recorder, fixed=fixed
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
    log_probs = _log_probs(head, frames, lengths, parameters.blank_penalty)
    return ctc_greedy(log_probs, lengths, head.blank, fixed=fixed)


def _ctc_beam(
    head: CtcHead,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: CtcBeam,
    fusion: Fusion | None,
    recorder: LatticeRecorder | None,
) -> Hypotheses:
    log_probs = _log_probs(head, frames, lengths, parameters.blank_penalty)
    fixed = parameters.scores == "fixed"
    return ctc_beam_search(
        log_probs, lengths, head.blank, parameters.beam, fusion, recorder, parameters.beta, fixed=fixed
    )


def _log_probs(head: CtcHead, frames: mx.array, lengths: np.ndarray, blank_penalty: float = 0.0) -> mx.array:
    """The head's log-probabilities [B, T, V + 1]. On a CPU each utterance is computed by itself and padded
    with zeros, since the bits of a product depend on its number of rows there and must not depend on the
    neighbours. blank_penalty: subtracted from blank's logit."""
    if frames.shape[1] == 0:
        return mx.zeros((frames.shape[0], 1, head.blank + 1))  # one unused frame, as MLX cannot reduce none
    if mx.default_device().type != mx.DeviceType.cpu:
        return head.log_probs(frames, blank_penalty)
    longest = frames.shape[1]
    rows = [
        mx.pad(head.log_probs(frames[row, :length], blank_penalty), [(0, longest - length), (0, 0)])
        if length
        else mx.zeros((longest, head.blank + 1))
        for row, length in enumerate(lengths.tolist())
    ]
    return mx.stack(rows)


def _most_symbols(head: Transducer, parameters: TransducerGreedy | TransducerBeam) -> int:
    return head.max_symbols if parameters.max_symbols is None else parameters.max_symbols


def _frame_beam(
    head: Transducer,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: FrameBeam,
    _: Fusion | None,
    __: LatticeRecorder | None,
) -> Hypotheses:
    return _mixed_beam(head, frames, lengths, parameters.beam, parameters.ctc_weight or 0.0)


def _mixed_beam(
    head: Transducer, frames: mx.array, lengths: np.ndarray, beam: int, ctc_weight: float
) -> Hypotheses:
    beside = _log_probs(head.ctc, frames, lengths) if ctc_weight > 0 and head.ctc is not None else None
    return frame_beam_search(head, frames, lengths, beam, beside, ctc_weight)


def _ctc_prefix(
    head: CtcHead,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: CtcBeam | Rescoring,
    fusion: Fusion | None,
    _: LatticeRecorder | None,
) -> Hypotheses:
    log_probs = _log_probs(head, frames, lengths, parameters.blank_penalty)
    fixed = parameters.scores == "fixed"
    return ctc_prefix_search(
        log_probs, lengths, head.blank, parameters.beam, fusion, parameters.beta, fixed=fixed
    )


def _wfst(
    head: CtcHead,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: GraphSearch,
    _: Fusion | None,
    recorder: LatticeRecorder | None,
) -> Hypotheses:
    graph = load_graph(parameters.graph or "")
    log_probs = _log_probs(head, frames, lengths, parameters.blank_penalty)
    settings = parameters.settings
    return wfst_search(
        *(log_probs, lengths, head.blank, graph, settings, parameters.beam, recorder),
        blank_first=head.blank_first,
    )


def _rescoring(
    head: HybridHead,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: Rescoring,
    fusion: Fusion | None,
    _: LatticeRecorder | None,
) -> Hypotheses:
    first = _ctc_prefix if parameters.graph is None else _wfst
    lists = first(head.ctc, frames, lengths, parameters, fusion, None)
    return rescore(head, frames, lengths, lists, parameters.weights)


def _transducer_rescoring(
    head: HybridHead,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: TransducerRescoring,
    _: Fusion | None,
    __: LatticeRecorder | None,
) -> Hypotheses:
    assert head.transducer is not None
    lists = _mixed_beam(head.transducer, frames, lengths, parameters.beam, parameters.search_ctc_weight)
    return rescore(head, frames, lengths, lists, parameters.weights)


def _lockstep(
    head: HybridHead,
    frames: mx.array,
    lengths: np.ndarray,
    parameters: LockstepBeam,
    _: Fusion | None,
    __: LatticeRecorder | None,
) -> Hypotheses:
    """Times are those of the CTC head's best path through the tokens."""
    windows, penalty = head.windows(frames, lengths), parameters.length_penalty or 0.0
    lists = attention_beam(head.left, windows, head.sos, lengths.tolist(), parameters.beam, penalty)
    log_probs = np.array(_log_probs(head.ctc, frames, lengths))
    return [
        [_timed(each, log_probs[row, : lengths[row]]) for each in hypotheses]
        for row, hypotheses in enumerate(lists)
    ]


def _timed(ended: Ended, log_probs: np.ndarray) -> Hypothesis:
    count, tokens = len(ended.tokens), np.array(ended.tokens, np.int64)
    columns = log_probs[:, [*ended.tokens, log_probs.shape[1] - 1]]
    spans = align_tokens(columns, tokens)
    if spans is None:  # evenly spaced, if the CTC head cannot have emitted these tokens
        times = [at * len(log_probs) // count for at in range(count)]
    else:
        times = [first + int(columns[first:last, at].argmax()) for at, (first, last) in enumerate(spans)]
    confidences = tuple(np.exp(np.array(ended.log_probs, np.float64)).tolist())
    return Hypothesis(ended.tokens, ended.score, tuple(times), (0,) * count, confidences)


SEARCHERS: dict[tuple[HeadName, str], Searcher] = {
    ("tdt", "greedy"): Searcher(TransducerGreedy, _transducer_greedy, fuses=True, lattices=False),
    ("tdt", "beam"): Searcher(TransducerBeam, _transducer_beam, fuses=True, lattices=True),
    ("rnnt", "greedy"): Searcher(TransducerGreedy, _transducer_greedy, fuses=True, lattices=False),
    ("rnnt", "beam"): Searcher(TransducerBeam, _transducer_beam, fuses=True, lattices=True),
    ("ctc", "greedy"): Searcher(CtcGreedy, _ctc_greedy, fuses=False, lattices=False),
    ("ctc", "beam"): Searcher(CtcBeam, _ctc_beam, fuses=True, lattices=True),
    ("ctc", "wfst"): Searcher(GraphSearch, _wfst, fuses=False, lattices=True),
    ("ctc+attention", "rescore"): Searcher(Rescoring, _rescoring, fuses=True, lattices=False),
    ("ctc+attention", "attention"): Searcher(LockstepBeam, _lockstep, fuses=False, lattices=False),
    ("rnnt+attention", "rescore"): Searcher(
        TransducerRescoring, _transducer_rescoring, fuses=False, lattices=False
    ),
    ("attention", "greedy"): Searcher(AttentionGreedy, None, fuses=True, lattices=False),
    ("attention", "beam"): Searcher(AttentionBeam, None, fuses=True, lattices=False),
}
"""All searches; a model's heads are tried in this order if the options name none."""
CTC_PREFIX = Searcher(CtcBeam, _ctc_prefix, fuses=True, lattices=False)
"""A CTC head's beam that sums over alignments."""
FRAME_BEAM = Searcher(FrameBeam, _frame_beam, fuses=False, lattices=False)
"""A transducer's beam with which a CTC head can be mixed."""
COMMON = frozenset({"decoder", "beam", "nbest", "head", "att_context", "reader"})
"""Options that every search understands: greedy is a beam of one, and has one hypothesis."""
