"""What was heard in a chunk of a recording, from the search to the row.

The engine answers with a `Recognition`, whose times count from the start of the audio that it was given. A
`DecodedChunk` has it at its place in the recording; it is the row that `spool.store.chunks` saves.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

from spool.domain.columns import BigInt, Called, NullIfEmpty, Sha256, Unprefixed, Unstored
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
    live session's step; the language that is spoken, if only that was asked; the `Emissions` of a CTC head if
    labels were asked for. makers: `ModelInfo.makers` of the models used. engine_ns: its share of the busy
    time of a batch of `batch_size` utterances.
    """

    hypotheses: Annotated[tuple[Hypothesis, ...], Unstored()] = ()
    words: tuple[Word, ...] = ()
    frames: Annotated[int, Unstored()] = 0
    nbest: Annotated[tuple[NbestText, ...], NullIfEmpty()] = ()
    lattice: Lattice | None = None
    language: ChunkLanguage | None = None
    text: Annotated[str | None, Unstored()] = None
    output: Annotated[Any, Unstored()] = None
    makers: Annotated[tuple[str | None, ...], Unstored()] = ()
    engine_ns: BigInt = 0
    batch_size: Annotated[int, Unstored()] = 1


@dataclass(frozen=True)
class ChunkSpan:
    """Positions are samples at 16 kHz from the recording's start: start <= core_start < core_end <= end.
    Cores tile a channel; the rest is context. Without `speech` the chunk is not decoded."""

    channel: int
    index: Annotated[int, Called("number")]
    core_start: BigInt
    core_end: BigInt
    start: Annotated[BigInt, Called("start_sample")]
    end: Annotated[BigInt, Called("end_sample")]
    speech: Annotated[bool, Unstored()] = True

    @property
    def core(self) -> int:
        """The length of the core in samples."""
        return self.core_end - self.core_start


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """One chunk and what was heard in it, with times in seconds of the recording; no words for silence.

    tail: the recording's last tokens up to here, each with its sample, from which the next chunk's search
    continues. emissions: until the job ends, what a CTC head says of the tokens of a text that is aligned
    (`worker.decode.alignment`). attempt, fingerprint: which attempt decoded it, and of which options and
    weights; None if unknown.
    """

    span: Annotated[ChunkSpan, Unprefixed()]
    heard: Annotated[Recognition, Unprefixed()] = Recognition()
    tail: tuple[tuple[int, int], ...] | None = None
    emissions: bytes | None = None
    attempt: int = field(default_factory=int)  # not a default of the column
    fingerprint: Sha256 | None = None
