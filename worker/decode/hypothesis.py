"""What a search is asked and what it answers. Plain Python: the process without MLX reads these too."""

from dataclasses import dataclass
from typing import Literal

from spool.transcript import Word

Head = Literal["auto", "tdt", "rnnt", "ctc"]
Decoder = Literal["greedy", "beam"]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How to search. `auto` takes the model's TDT head, else RNNT, else CTC."""

    decoder: Decoder = "greedy"
    beam: int = 4
    nbest: int = 1
    head: Head = "auto"
    max_symbols: int = 10


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One path through an utterance.

    `tokens`, `times`, `durations` and `confidences` are of one length. `times` are encoder frames of
    emission; `durations` are encoder frames (0 on RNNT and CTC); `score` is a raw natural-log probability,
    not normalised by length; `confidences` are probabilities of each token among all labels and blank (empty
    when unknown).
    """

    tokens: tuple[int, ...]
    score: float
    times: tuple[int, ...]
    durations: tuple[int, ...]
    confidences: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class UtteranceResult:
    """What the engine answers for one utterance.

    Hypotheses best first, the words of the best (times in seconds from the utterance's start), its encoder
    frames, and its share of the batch's busy time in nanoseconds.
    """

    hypotheses: tuple[Hypothesis, ...]
    words: tuple[Word, ...]
    frames: int
    engine_ns: int
    batch_size: int
