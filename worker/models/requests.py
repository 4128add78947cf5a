"""Requests and options of searches. Plain Python, for the process without MLX too.

`SearchOptions` has all options; each search's own are in its dataclass of parameters
(`worker.decode.search.SEARCHERS`).
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

Head = Literal["auto", "tdt", "rnnt", "ctc", "attention"]
Decoder = Literal["greedy", "beam", "rescore", "attention", "wfst"]
Alignments = Literal["auto", "best", "all"]
Pruning = Literal["late", "early"]
Scores = Literal["float", "fixed"]
Task = Literal["transcribe", "translate"]
Timestamps = Literal["auto", "on", "off"]
CONTEXT_TOKENS = 256  # longer than any n-gram and any phrase


@dataclass(frozen=True, slots=True)
class IdentifyLanguage:
    """A step of a model that detects languages (`worker.models.base.LanguageIdentifier`)."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How to search; a value that is not the default is refused where the search has no such parameter.

    decoder: `rescore` orders a CTC beam's hypotheses by attention decoders beside it, `attention` is the beam
    of such a decoder, `wfst` searches a decoding graph over a CTC head; `rescore` orders its list where a
    graph is given. head: `auto` takes the model's TDT head, else RNNT, CTC, attention. max_symbols: labels of
    a frame at most, None for what the model is used with. lm_blanks: whether the language model has a say in
    blanks too. pruning: a transducer's beam fuses first and then keeps the best labels of a hypothesis
    (`late`), or keeps the acoustically best and then fuses (`early`). beta: what the beam of a CTC head adds
    for each token. blank_penalty: subtracted from blank's logit of a CTC head that is searched. alignments:
    whether its beam scores a hypothesis by its best alignment or by the sum of all; `auto` is what the
    model's own tools do. ctc_weight, reverse_weight, attention_weight: in rescoring, of the CTC score, of the
    decoder from right to left, and of both decoders, None for the search's own; ctc_weight also mixes a CTC
    head into the beam of WeNet's transducers, and is that of the beam's own score where their list is
    rescored; transducer_weight: there of a hypothesis's log-likelihood over all alignments;
    search_ctc_weight: there of the CTC head in the beam. scores: added up as float32, or in fixed point,
    where no order of sums counts. patience, length_penalty: of an attention decoder's beam
    (`worker.decode.attention.beam.BeamSettings`; of the `attention` decoder the power of the length that
    scores are divided by, by default 0). att_context: of a cache-aware encoder, in frames left and right;
    None for its default. graph: path of a decoding graph. graph_beam, max_active, lattice_beam, blank_skip,
    acoustic_scale: of its search (`worker.decode.wfst.search.WfstSettings`), where `beam` only counts
    hypotheses, and `length_penalty` is added to the cost of each unit. reader: path of a second model, whose
    attention decoder orders the hypotheses (`worker.decode.attention.second`).
    """

    decoder: Decoder = "greedy"
    beam: int = 4
    nbest: int = 1
    head: Head = "auto"
    max_symbols: int | None = None
    lm_blanks: bool = False
    pruning: Pruning = "late"
    beta: float = 0.0
    blank_penalty: float = 0.0
    scores: Scores = "float"
    patience: float = 1.0
    length_penalty: float | None = None
    alignments: Alignments = "auto"
    ctc_weight: float | None = None
    reverse_weight: float | None = None
    attention_weight: float = 1.0
    transducer_weight: float = 0.0
    search_ctc_weight: float = 0.0
    att_context: tuple[int, int] | None = None
    graph: str | None = None
    graph_beam: float = 16.0
    max_active: int = 7000
    lattice_beam: float = 10.0
    blank_skip: float = 1.0
    acoustic_scale: float = 1.0
    reader: str | None = None


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """All that the engine is asked for one utterance. Utterances of equal `search` may share a batch.

    phrases: texts to boost, with the weight `boost`. lm: path of an ARPA file, with the weight `lm_weight`.
    context: the tokens before the utterance, oldest first, from which language model and phrases continue.
    alternatives: the number of alternatives of each word. lattice: the pruning beam of a lattice (natural
    logarithm), None for none. reader_weight: the weight of the reader in `SearchOptions`. step: a step of a
    diarization model's network or of a live session, or `IdentifyLanguage`, instead of words. spell: the
    words of a text to align, for `prepare`; labels: the tokens of these words, whose probability in each
    frame a CTC head returns. carries: each chunk goes on from what was heard before it, so that a job's
    chunks are decoded one after another.

    What the model's family does with it, whatever the search: language: a code such as "de", several to
    choose among, None for what the family does without one. translate_to: the language to write in, where it
    is another; None is English for the task "translate". timestamps: whether the decoder writes times among
    its tokens. prompt: text that came before, or what the family reads in its place. hotwords: words to
    expect. punctuation: False for words without marks and capitals. single: the utterance is one window and
    its hypotheses are given as the search found them; nothing is asked again.
    """

    phrases: tuple[str, ...] = ()
    boost: float = 1.0
    context: tuple[int, ...] = ()
    lm: str | None = None
    lm_weight: float = 0.3
    alternatives: int = 0
    lattice: float | None = None
    reader_weight: float = 0.0
    step: Hashable = None
    spell: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    language: str | tuple[str, ...] | None = None
    task: Task = "transcribe"
    translate_to: str | None = None
    timestamps: Timestamps = "auto"
    prompt: str = ""
    hotwords: str = ""
    punctuation: bool = True
    single: bool = False
    carries: bool = False
    search: SearchOptions = field(default_factory=SearchOptions)

    @property
    def pinned(self) -> str | None:
        """The one language that is asked for; None where the model has to choose."""
        return self.language if isinstance(self.language, str) else None

    @property
    def candidates(self) -> tuple[str, ...]:
        """The languages to choose among; empty for all."""
        return self.language if isinstance(self.language, tuple) else ()
