"""What was heard in a chunk of a recording, from the search to the row.

The engine answers with a `Recognition`, whose times count from the start of the audio that it was given. A
`DecodedChunk` has it at its place in the recording; `spool.store.chunks` saves it.
"""

from dataclasses import dataclass
from typing import Any

from spool.domain.transcript import ChunkLanguage, Lattice, NbestText, Word


@dataclass(frozen=True, slots=True)
class WordFrames:
    """A word with its encoder frames (half-open) and the lowest probability of its units."""

    text: str
    first: int
    last: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One path through an utterance.

    `tokens`, `times`, `durations` and `confidences` are of one length. `times` are encoder frames of
    emission; `durations` are encoder frames (0 on RNNT and CTC); `score` is a raw natural-log probability,
    not normalised by length; `confidences` are probabilities of each token among all labels and blank (empty
    when unknown). `spoken`: the words, if the search knows words and not only tokens.
    """

    tokens: tuple[int, ...]
    score: float
    times: tuple[int, ...]
    durations: tuple[int, ...]
    confidences: tuple[float, ...] = ()
    spoken: tuple[WordFrames, ...] | None = None


@dataclass(frozen=True, slots=True)
class Recognition:
    """What was heard in one utterance, and what it cost.

    hypotheses: best first. words: of the best. frames: encoder frames. nbest: the texts of the hypotheses, if
    more than one was asked for. lattice: if asked for. language: the language decoded in, if the model tells.
    text: if that need not be the first hypothesis's. output: that of a diarization model's network or of a
    live session's step; the `Emissions` of a CTC head if labels were asked for. makers: `ModelInfo.makers` of
    the models used. engine_ns: its share of the busy time of a batch of `batch_size` utterances.
    """

    hypotheses: tuple[Hypothesis, ...] = ()
    words: tuple[Word, ...] = ()
    frames: int = 0
    nbest: tuple[NbestText, ...] = ()
    lattice: Lattice | None = None
    language: ChunkLanguage | None = None
    text: str | None = None
    output: Any = None
    makers: tuple[str | None, ...] = ()
    engine_ns: int = 0
    batch_size: int = 1


@dataclass(frozen=True)
class ChunkSpan:
    """Positions are samples at 16 kHz from the recording's start: start <= core_start < core_end <= end.
    Cores tile a channel; the rest is context. Without `speech` the chunk is not decoded."""

    channel: int
    index: int
    core_start: int
    core_end: int
    start: int
    end: int
    speech: bool = True

    @property
    def core(self) -> int:
        """The length of the core in samples."""
        return self.core_end - self.core_start


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """One chunk and what was heard in it, with times in seconds of the recording; no words for silence.

    tail: the recording's last tokens up to here, each with its sample, from which the next chunk's search
    continues. emissions: what a CTC head says of the tokens of a text that is aligned
    (`worker.decode.alignment`). attempt, fingerprint: which attempt decoded it, and of which options and
    weights; None if unknown.
    """

    span: ChunkSpan
    heard: Recognition = Recognition()
    tail: tuple[tuple[int, int], ...] | None = None
    emissions: bytes | None = None
    attempt: int = 0
    fingerprint: str | None = None
