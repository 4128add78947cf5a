"""All searches: from a batch of encoder frames to the answer for each utterance.

`SEARCHES` says which function searches which kind of head; each is in its own module. Which options it takes
is said where those are declared (`spool.domain.search.fields`). Attention decoders are read in windows
(`worker.decode.attention.reading`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from spool.domain.recognition import Hypothesis
from spool.domain.search.searches import (
    ATTENTION_BEAM,
    ATTENTION_GREEDY,
    CTC_ATTENTION,
    CTC_BEAM,
    CTC_GREEDY,
    CTC_PREFIXES,
    FRAME_BEAM,
    GRAPH_SEARCH,
    RESCORED_CTC,
    RESCORED_TRANSDUCER,
    Search,
)
from spool.errors import InvalidRequest
from worker.decode.alignment.viterbi import align_tokens
from worker.decode.answer import Answer
from worker.decode.attention.beam import AttentionSearch, ScoredTokens, SearchRequest, SumBeam
from worker.decode.attention.rescore import RescoringWeights, check_weights, rescore
from worker.decode.checks import (
    Searchable,
    can_fuse,
    cannot_fuse,
    check_graph,
    check_request,
    describe_head,
    refuse_others,
    takes,
)
from worker.decode.ctc.beam import ctc_beam_search
from worker.decode.ctc.greedy import ctc_greedy
from worker.decode.ctc.prefix import ctc_prefix_search
from worker.decode.fusion.fusion import Fusion, make_fusion
from worker.decode.lattice.build import word_graph
from worker.decode.lattice.confidence import arc_posteriors
from worker.decode.lattice.word_graph import with_posteriors
from worker.decode.recorder import LatticeRecorder
from worker.decode.transducer.beam import beam_search
from worker.decode.transducer.frame_beam import frame_beam_search
from worker.decode.transducer.greedy import greedy_search
from worker.decode.wfst.graph import load_graph
from worker.decode.wfst.search import wfst_search
from worker.models.attention.rules import NoRules
from worker.models.base import Encoded, HeadName, Tokenizer
from worker.models.base_attention import AttentionHead
from worker.models.heads.ctc import BestLabels, CtcHead
from worker.models.heads.transducer import Transducer
from worker.models.requests import DecodeRequest, SearchOptions

Hypotheses = list[list[Hypothesis]]


@dataclass(frozen=True, slots=True)
class SearchInput:
    """A batch to search: encoder frames [B, T, d_model] for `head`, and lengths [B]."""

    head: Any
    frames: mx.array
    lengths: np.ndarray
    options: SearchOptions
    fusion: Fusion | None = None
    recorder: LatticeRecorder | None = None

    @property
    def fixed(self) -> bool:
        """Whether scores are added up in fixed point."""
        return self.options.scores == "fixed"

    @property
    def max_symbols(self) -> int:
        """The most symbols of a transducer at one frame."""
        own = self.options.max_symbols
        most: int = self.head.max_symbols if own is None else own
        return most


def rescoring_weights(options: SearchOptions) -> RescoringWeights:
    """The weights of a CTC list, with defaults for those not given."""
    given = {
        "ctc": options.ctc_weight,
        "reverse": options.reverse_weight,
        "attention": options.attention_weight,
    }
    return RescoringWeights(**{name: weight for name, weight in given.items() if weight is not None})


def transducer_weights(options: SearchOptions) -> RescoringWeights:
    """The weights of a transducer's list; the beam's own score and the right-to-left decoder count only if
    given."""
    return RescoringWeights(
        options.ctc_weight or 0.0,
        options.reverse_weight or 0.0,
        options.transducer_weight,
        options.attention_weight,
    )


def _search_greedy(batch: SearchInput) -> Hypotheses:
    head, lengths, most = batch.head, batch.lengths, batch.max_symbols
    return greedy_search(head, batch.frames, lengths, most, batch.fusion, fixed=batch.fixed)


def _search_beam(batch: SearchInput) -> Hypotheses:
    return beam_search(
        batch.head,
        batch.frames,
        batch.lengths,
        batch.options.beam,
        batch.max_symbols,
        batch.fusion,
        batch.recorder,
        fixed=batch.fixed,
    )


def _search_frame_beam(batch: SearchInput) -> Hypotheses:
    return _mix_beam(batch.head, batch, batch.options.ctc_weight or 0.0)


def _mix_beam(head: Transducer, batch: SearchInput, ctc_weight: float) -> Hypotheses:
    """The beam of a transducer with its CTC head, if that has a weight."""
    frames, lengths = batch.frames, batch.lengths
    ctc = _log_probs(head.ctc, frames, lengths) if ctc_weight > 0 and head.ctc is not None else None
    return frame_beam_search(head, frames, lengths, batch.options.beam, ctc, ctc_weight)


def _ctc_scores(batch: SearchInput) -> tuple[mx.array, np.ndarray, int]:
    """What a search over a CTC head begins with: log-probabilities, lengths, and the blank label."""
    head, lengths = batch.head, batch.lengths
    return _log_probs(head, batch.frames, lengths, batch.options.blank_penalty), lengths, head.blank


def _search_ctc_greedy(batch: SearchInput) -> Hypotheses:
    head, lengths = batch.head, batch.lengths
    best = _best_labels(head, batch.frames, lengths, batch.options.blank_penalty)
    return ctc_greedy(best, lengths, head.blank, fixed=batch.fixed)


def _search_ctc_beam(batch: SearchInput) -> Hypotheses:
    options = batch.options
    return ctc_beam_search(
        *_ctc_scores(batch), options.beam, batch.fusion, batch.recorder, options.beta, fixed=batch.fixed
    )


def _search_ctc_prefixes(batch: SearchInput) -> Hypotheses:
    options = batch.options
    return ctc_prefix_search(*_ctc_scores(batch), options.beam, batch.fusion, options.beta, fixed=batch.fixed)


def _search_graph(batch: SearchInput) -> Hypotheses:
    graph = batch.options.graph
    assert graph is not None  # `resolve_search` refuses
    return wfst_search(
        *_ctc_scores(batch),
        load_graph(graph.name),
        graph,
        batch.options.beam,
        batch.recorder,
        blank_unit=batch.head.blank_unit,
    )


def _rescore_ctc(batch: SearchInput) -> Hypotheses:
    """A graph's search makes the list if there is one, else the prefix beam."""
    search = _search_ctc_prefixes if batch.options.graph is None else _search_graph
    lists = search(replace(batch, head=batch.head.ctc, recorder=None))
    return rescore(batch.head, batch.frames, batch.lengths, lists, rescoring_weights(batch.options))


def _rescore_transducer(batch: SearchInput) -> Hypotheses:
    lists = _mix_beam(batch.head.transducer, batch, batch.options.search_ctc_weight)
    return rescore(batch.head, batch.frames, batch.lengths, lists, transducer_weights(batch.options))


def _search_attention(batch: SearchInput) -> Hypotheses:
    """Times are those of the CTC head's best path through the tokens."""
    head, frames, lengths, options = batch.head, batch.frames, batch.lengths, batch.options
    decoder: AttentionHead[Any] = head.left
    ends, penalty = (decoder.eos,), options.length_penalty or 0.0
    rule = SumBeam(ends, options.beam, penalty, start_counts=head.sos != decoder.eos)
    windows, most = head.windows(frames, lengths), decoder.max_tokens - 1
    # The decoder's tokens are the CTC head's labels but for blank, which is last.
    search = AttentionSearch(decoder, NoRules(head.ctc.blank), rule, width=len(lengths))
    answers = search.run(
        SearchRequest(row, windows[row], (head.sos,), limit=min(length, most))
        for row, length in enumerate(lengths.tolist())
        if length
    )
    found = {answer.key: answer.hypotheses for answer in answers}
    without_frames = (ScoredTokens((), 0.0, ended=False),)
    log_probs = np.array(_log_probs(head.ctc, frames, lengths))
    return [
        [_add_times(each, log_probs[row, :length]) for each in found.get(row, without_frames)]
        for row, length in enumerate(lengths.tolist())
    ]


def _log_probs(head: CtcHead, frames: mx.array, lengths: np.ndarray, blank_penalty: float = 0.0) -> mx.array:
    """The head's log-probabilities [B, T, V + 1], of each utterance by itself on a CPU, padded with zeros.
    blank_penalty: subtracted from blank's logit."""
    if frames.shape[1] == 0:
        return mx.zeros((frames.shape[0], 1, head.blank + 1))  # one unused frame, as MLX cannot reduce none
    if _takes_all_at_once():
        return head.log_probs(frames, blank_penalty)
    longest = frames.shape[1]
    rows = [
        mx.pad(head.log_probs(frames[row, :length], blank_penalty), [(0, longest - length), (0, 0)])
        if length
        else mx.zeros((longest, head.blank + 1))
        for row, length in enumerate(lengths.tolist())
    ]
    return mx.stack(rows)


def _best_labels(head: CtcHead, frames: mx.array, lengths: np.ndarray, blank_penalty: float) -> BestLabels:
    """The head's best label of each frame [B, T], of each utterance by itself on a CPU, padded with blanks.
    blank_penalty: subtracted from blank's logit."""
    if frames.shape[1] and _takes_all_at_once():
        return head.best_labels(frames, blank_penalty)
    shape = frames.shape[:2]
    best = BestLabels(np.full(shape, head.blank), np.zeros(shape, np.float32), np.zeros(shape, np.float32))
    for row, length in enumerate(lengths.tolist()):
        if length:
            own = head.best_labels(frames[row, :length], blank_penalty)
            best.labels[row, :length] = own.labels
            best.log_probs[row, :length] = own.log_probs
            best.blank[row, :length] = own.blank
    return best


def _takes_all_at_once() -> bool:
    """Whether a head takes the frames of all utterances at once. On a CPU the bits of a product depend on its
    number of rows, and must not depend on the neighbours."""
    return mx.default_device().type != mx.DeviceType.cpu


def _add_times(ended: ScoredTokens, log_probs: np.ndarray) -> Hypothesis:
    count, tokens = len(ended.tokens), np.array(ended.tokens, np.int64)
    columns = log_probs[:, [*ended.tokens, log_probs.shape[1] - 1]]
    spans = align_tokens(columns, tokens)
    if spans is None:  # evenly spaced, if the CTC head cannot have emitted these tokens
        times = [at * len(log_probs) // count for at in range(count)]
    else:
        times = [first + int(columns[first:last, at].argmax()) for at, (first, last) in enumerate(spans)]
    confidences = tuple(np.exp(np.array(ended.log_probs, np.float64)).tolist())
    return Hypothesis(ended.tokens, ended.score, tuple(times), (0,) * count, confidences)


Run = Callable[[SearchInput], Hypotheses]
SEARCHES: dict[Search, Run | None] = {
    Search("tdt", "greedy"): _search_greedy,
    Search("tdt", "beam"): _search_beam,
    Search("rnnt", "greedy"): _search_greedy,
    Search("rnnt", "beam"): _search_beam,
    FRAME_BEAM: _search_frame_beam,
    CTC_GREEDY: _search_ctc_greedy,
    CTC_BEAM: _search_ctc_beam,
    CTC_PREFIXES: _search_ctc_prefixes,
    GRAPH_SEARCH: _search_graph,
    RESCORED_CTC: _rescore_ctc,
    CTC_ATTENTION: _search_attention,
    RESCORED_TRANSDUCER: _rescore_transducer,
    ATTENTION_GREEDY: None,
    ATTENTION_BEAM: None,
}
"""From a batch to the hypotheses of each utterance; None if the search needs more than frames. If the options
name no head, a model's heads are tried in this order."""


class Spelling(Protocol):
    """A model that can be searched, and whose tokens can be read."""

    @property
    def heads(self) -> Mapping[HeadName, Any]:
        """The heads by name."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokens, as texts and from texts."""


def answers(
    model: Spelling,
    encoded: Encoded,
    options: SearchOptions,
    requests: Sequence[DecodeRequest] | None = None,
    resolved: Search | None = None,
) -> list[Answer]:
    """The results of `search`, with the beam's lattices. resolved: what `resolve_search` gave."""
    recorder = LatticeRecorder([request.lattice for request in requests or ()])
    utterances = search(model, encoded, options, requests, recorder, resolved)
    records = recorder.records()
    found = []
    for row, (hypotheses, frames) in enumerate(zip(utterances, encoded.lengths.tolist(), strict=True)):
        answer = Answer(tuple(hypotheses), None, frames=int(frames))
        if (lattice := recorder.graphs.get(row)) is not None:
            answer = replace(answer, graph=with_posteriors(lattice.words), reach=lattice.reach)
        elif records and hypotheses:
            answer = replace(answer, graph=arc_posteriors(word_graph(records[row], model.tokenizer)))
        found.append(answer)
    return found


def search(
    model: Searchable,
    encoded: Encoded,
    options: SearchOptions,
    requests: Sequence[DecodeRequest] | None = None,
    recorder: LatticeRecorder | None = None,
    resolved: Search | None = None,
) -> Hypotheses:
    """The hypotheses of each utterance, best first, at most `options.nbest` of them.

    recorder: records a beam's steps. requests: one per utterance, independent of each other. To carry a job's
    language model and phrases over its chunks, a chunk's context is that of the chunk before it followed by
    that chunk's best tokens.

    An utterance depends on its own frames only: one without frames has one empty hypothesis, and one whose
    logits are not finite has an empty list, which `best_of` turns into an error. Greedy search has one
    hypothesis. Raises InvalidRequest if the model or this version does not support the options.
    """
    chosen = resolved or resolve_search(model, options)
    lengths = np.asarray(encoded.lengths, dtype=np.int32)
    if requests is not None and len(requests) != len(lengths):
        raise ValueError(f"{len(requests)} requests for {len(lengths)} utterances")
    for request in requests or ():
        check_request(chosen, options, request)
    fusion = None if requests is None else make_fusion(model.tokenizer, options, requests)
    run = SEARCHES[chosen]
    if run is None:
        raise InvalidRequest(f"{describe_head(chosen.head)} is not searched over frames alone")
    if fusion is not None and not can_fuse(chosen, options):
        raise cannot_fuse(chosen.head, options, requests or ())
    batch = SearchInput(model.heads[chosen.head], encoded.frames, lengths, options, fusion, recorder)
    return [nbest[: options.nbest] for nbest in run(batch)]


def check_options(model: Searchable, options: SearchOptions, request: DecodeRequest | None = None) -> None:
    """Raises InvalidRequest, before any audio, where `search` would: no such head, a broken file."""
    chosen = resolve_search(model, options)
    if request is None:
        return
    check_request(chosen, options, request)
    if can_fuse(chosen, options):
        make_fusion(model.tokenizer, options, [request])
    elif request.language_model or request.phrases:
        raise cannot_fuse(chosen.head, options, [request])


def resolve_search(model: Searchable, options: SearchOptions) -> Search:
    """The search that these options ask for. Raises InvalidRequest."""
    chosen = _find_search(model, resolve_head(model, options), options)
    refuse_others(chosen, options)
    if chosen == RESCORED_CTC:
        check_weights(model.heads[chosen.head], rescoring_weights(options))
    if chosen == RESCORED_TRANSDUCER:
        check_weights(model.heads[chosen.head], transducer_weights(options))
    if takes(chosen, "graph"):
        check_graph(model, options)
    return chosen


def _find_search(model: Searchable, head: HeadName, options: SearchOptions) -> Search:
    """The search of this head, in the variant for this model. Raises InvalidRequest."""
    chosen = Search(head, options.decoder)
    if chosen not in SEARCHES:
        known = ", ".join(each.decoder for each in SEARCHES if each.head == head and not each.variant)
        raise InvalidRequest(f"unknown decoder {options.decoder!r} for {describe_head(head)}: {known}")
    if chosen == CTC_BEAM:
        sums = options.alignments == "all" or (options.alignments == "auto" and model.heads["ctc"].sums)
        return CTC_PREFIXES if sums else chosen
    if chosen == Search("rnnt", "beam") and model.heads["rnnt"].ctc is not None:
        if not 0 <= (options.ctc_weight or 0.0) < 1:
            raise InvalidRequest("ctc_weight of a transducer's beam must be at least 0 and below 1")
        return FRAME_BEAM
    return chosen


def resolve_head(model: Searchable, options: SearchOptions) -> HeadName:
    """The head of the model that these options search. Raises InvalidRequest."""
    fitting = [
        each
        for each in SEARCHES
        if each.head in model.heads and options.head in ("auto", each.head, *each.head.split("+"))
    ]
    if not fitting:
        has = ", ".join(sorted(model.heads)) or "none that can be searched"
        raise InvalidRequest(f"the model has no {options.head} head; it has: {has}")
    return next((each for each in fitting if each.decoder == options.decoder), fitting[0]).head
