"""The transcript as it is stored: words with times, segments, coverage, n-best lists and lattices.

Pure data; times are seconds from the start of the recording. The JSON form of `Transcript` is the record, and
`spool.formats` renders every other form from it. A lattice covers one chunk: its states are numbered so that
every arc leads to a higher one, state 0 is the start, and weights are natural logarithms: the sum of
`acoustic` and `lm` along a path and of its end is the path's score.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue


def parse_language(value: object) -> object:
    """One form for each choice of languages: None for `auto`, a code, or codes in order, each once."""
    if value == "auto":
        return None
    if isinstance(value, list | tuple | set) and all(isinstance(code, str) for code in value):
        codes = tuple(sorted(set(value)))
        return codes[0] if len(codes) == 1 else codes
    return value


def language_of_text(text: str | None) -> str | tuple[str, ...] | None:
    """What a command line's `auto`, `de` or `de,fr` asks for."""
    codes = tuple(sorted({code.strip() for code in (text or "auto").split(",") if code.strip()}))
    if codes in ((), ("auto",)):
        return None
    return codes[0] if len(codes) == 1 else codes


LanguageCode = Annotated[str, Field(pattern="^[a-z]{2,3}$")]
Language = Annotated[
    LanguageCode | Annotated[tuple[LanguageCode, ...], Field(min_length=2, max_length=20)] | None,
    BeforeValidator(parse_language),
]


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )


class LatticeArc(_Frozen):
    """One word between two states. `confidence` is how probable it is; `lm` is what a language model and
    boosted phrases gave. A token without text is an arc with an empty word."""

    source: Annotated[int, Field(alias="from", ge=0)]
    target: Annotated[int, Field(alias="to", ge=0)]
    word: str
    start: float
    end: float
    acoustic: float
    lm: float
    confidence: Annotated[float, Field(ge=0, le=1)]


class LatticeEnd(_Frozen):
    """A state where a path may end, and what ending there weighs."""

    state: Annotated[int, Field(ge=0)]
    acoustic: float
    lm: float


class Lattice(_Frozen):
    """One chunk's lattice. `prune`: arcs are kept whose best path is within so much of the best path's score.
    `times`: for each state, when the words before it have ended."""

    start: Annotated[float, Field(ge=0)]
    end: Annotated[float, Field(ge=0)]
    channel: int = 0
    prune: float
    score: float
    frame_seconds: Annotated[float, Field(gt=0)]
    times: tuple[float, ...]
    arcs: tuple[LatticeArc, ...]
    ends: tuple[LatticeEnd, ...]

    def moved(self, seconds: float, channel: int) -> "Lattice":
        """The same, `seconds` later."""

        def later(time: float) -> float:
            return round(time + seconds, 3)

        arcs = tuple(
            arc.model_copy(update={"start": later(arc.start), "end": later(arc.end)}) for arc in self.arcs
        )
        moved = {
            "start": later(self.start),
            "end": later(self.end),
            "channel": channel,
            "times": tuple(map(later, self.times)),
            "arcs": arcs,
        }
        return self.model_copy(update=moved)


SCHEMA: Literal["spool.transcript/1"] = "spool.transcript/1"

Seconds = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
SpeakerLabel = Annotated[str, Field(pattern=r"^speaker_[0-9]{1,4}$")]
"""`speaker_0` speaks first, `speaker_1` second, and so on. It stays the same whatever a person names them."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Alternative(_Record):
    """Another word that was heard over the time of one, and how probable it is."""

    text: str
    confidence: Share


class Word(_Record):
    """One word. `confidence` is 0 to 1: of a beam how probable the word is, of greedy the lowest probability
    among its tokens. `alternatives`, where asked for, are what else was heard over its time, most probable
    first. `doubtful`: the speech detector heard nobody over its time. `speaker` is a label of
    `Transcript.speakers`; `overlap` says that another speaker speaks over it."""

    text: str
    start: Seconds
    end: Seconds
    confidence: Share
    channel: int = 0
    alternatives: Annotated[tuple[Alternative, ...], Field(exclude_if=lambda value: not value)] = ()
    doubtful: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    speaker: Annotated[SpeakerLabel | None, Field(exclude_if=lambda value: value is None)] = None
    overlap: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    corrected: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """A person wrote it."""


class NbestText(_Record):
    """One hypothesis of a chunk. `score` is its natural-log probability, higher is better, with what a
    language model and boosted phrases added; comparable within its chunk alone."""

    text: str
    score: float


class ChunkNbest(_Record):
    """What the search made of one stretch of one channel, best first."""

    start: Seconds
    end: Seconds
    channel: int = 0
    hypotheses: tuple[NbestText, ...]


class Segment(_Record):
    """A stretch of one channel fit to be read at once. `first_word` and `last_word` index the words."""

    start: Seconds
    end: Seconds
    text: str
    channel: int
    first_word: int
    last_word: int
    speaker: Annotated[SpeakerLabel | None, Field(exclude_if=lambda value: value is None)] = None


class Turn(_Record):
    """One speaker from `start` to `end`; turns of two speakers may overlap."""

    start: Seconds
    end: Seconds
    speaker: SpeakerLabel
    channel: int = 0


class Speaker(_Record):
    """One speaker. `name` is what a person calls them. `talk_seconds` is the length of their turns, `words`
    how many words are theirs; `channel` is set where a channel was kept apart."""

    label: SpeakerLabel
    name: str | None = None
    talk_seconds: Seconds
    words: int
    channel: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None


class DroppedSegment(_Record):
    """A segment that is no part of the transcript, since the speech detector heard nobody over any of its
    words."""

    start: Seconds
    end: Seconds
    text: str
    channel: int
    words: tuple[Word, ...]


class SpeechSpan(_Record):
    """What the speech detector says of a stretch of one channel. Nothing of `no_speech` needs decoding;
    `unclear` is neither long enough without speech nor sure to be any. `silent`: nobody speaks, and nothing
    in it is above -60 dBFS; whether what is louder is music or noise is not told."""

    start: Seconds
    end: Seconds
    label: Literal["speech", "no_speech", "unclear"]
    channel: int = 0
    silent: Annotated[bool, Field(exclude_if=lambda value: not value)] = False


class ChunkLanguage(_Record):
    """The language that one chunk was read in, and the likeliest ones with their probabilities; none where
    nobody asked the model to detect it."""

    code: str
    probabilities: dict[str, Share] = {}


class LanguageSpan(_Record):
    """The language of one chunk, smoothed over the recording. `probability`: what the model gave it there,
    None where the language was given. `read_as`: the language that the chunk was read in, where it is
    another."""

    start: Seconds
    end: Seconds
    channel: int = 0
    language: str
    probability: Annotated[Share | None, Field(exclude_if=lambda value: value is None)] = None
    read_as: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None


class Gap(_Record):
    """A stretch of the recording that no chunk covered."""

    start: Seconds
    end: Seconds
    channel: int


class Coverage(_Record):
    """How much of the input went through (law 6): `ratio` is 1 when every sample was in a chunk's core.
    Of these samples `speech_seconds` were decoded by the engine and `skipped_seconds` passed over, since they
    are silence or the speech detector heard nobody in them. `speech`: the share of detected speech within
    half a second of a word; None where none was detected, or nobody asked for it."""

    audio_seconds: Seconds
    covered_seconds: Seconds
    speech_seconds: Seconds
    skipped_seconds: Seconds = 0.0
    ratio: Annotated[float, Field(ge=0, le=1)]
    gaps: tuple[Gap, ...] = ()
    speech: Annotated[Share | None, Field(exclude_if=lambda value: value is None)] = None


class AudioFacts(_Record):
    """What the source file was. `complete`: whether `duration` is all that the file's header states; None
    where the file does not state its length. `missing_seconds` is None where that is not known."""

    name: str
    format: str
    sample_rate: int
    channels: int
    duration: Seconds
    complete: bool | None = None
    expected_seconds: Seconds | None = None
    missing_seconds: Seconds | None = None
    warnings: tuple[str, ...] = ()


class ModelFacts(_Record):
    """Which weights spoke; of a language model, which file."""

    name: str
    sha256: str


class DiarizationFacts(ModelFacts):
    """What told speakers apart; note: what has to be said of it, such as that another model took over."""

    note: Annotated[str, Field(exclude_if=lambda value: not value)] = ""


class AlignmentFacts(_Record):
    """How well an existing transcript fits its recording. sha256: of its words and their speakers; score: the
    mean of its words' confidence, of those that the model can spell; belongs: whether that is enough for a
    text of this recording."""

    sha256: str
    score: Share
    belongs: bool


class Correction(_Record):
    """What a person made of the words `first_word` to `last_word`, counted as they were recognised: their
    text is `original`. text: None where they stay; speaker: None where it stays. `at` is UTC. In the
    transcript as it is they are `words` words, the first of them at `word`."""

    revision: int
    word: int
    words: int
    first_word: int
    last_word: int
    original: str
    text: str | None
    speaker: SpeakerLabel | None
    author: str
    at: str


class Transcript(_Record):
    """One recording's words."""

    schema_version: Literal["spool.transcript/1"] = SCHEMA
    job: str | None = None
    audio: AudioFacts
    model: ModelFacts
    language_model: ModelFacts | None = None
    options: dict[str, JsonValue]
    warnings: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """What was asked for and could not be done."""
    coverage: Coverage
    text: str
    words: tuple[Word, ...]
    segments: tuple[Segment, ...]
    nbest: tuple[ChunkNbest, ...] = ()
    """Each searched chunk's hypotheses, where more than one was asked for; chunks may overlap a little."""
    lattice: Annotated[tuple[Lattice, ...], Field(exclude_if=lambda value: not value)] = ()
    """Each searched chunk's lattice, where it was asked for, by time and channel."""
    speech: Annotated[tuple[SpeechSpan, ...], Field(exclude_if=lambda value: not value)] = ()
    """Where somebody speaks, by channel and time; the spans of a channel cover it without a gap."""
    dropped: Annotated[tuple[DroppedSegment, ...], Field(exclude_if=lambda value: not value)] = ()
    language: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """What is spoken for most of the time; None where the model tells no language."""
    languages: Annotated[tuple[LanguageSpan, ...], Field(exclude_if=lambda value: not value)] = ()
    """What is spoken in each chunk that has words, by channel and time."""
    speakers: Annotated[tuple[Speaker, ...], Field(exclude_if=lambda value: not value)] = ()
    """In the order in which they first speak; empty where nobody asked for them, and where nobody speaks."""
    turns: Annotated[tuple[Turn, ...], Field(exclude_if=lambda value: not value)] = ()
    """Who speaks when, by start."""
    diarization: Annotated[DiarizationFacts | None, Field(exclude_if=lambda value: value is None)] = None
    """What told the speakers apart; absent where nobody asked for them."""
    alignment: Annotated[AlignmentFacts | None, Field(exclude_if=lambda value: value is None)] = None
    """Of a transcript whose words were given; absent where they were recognised."""
    corrections: Annotated[tuple[Correction, ...], Field(exclude_if=lambda value: not value)] = ()
    """What people corrected; never in the stored record."""

    def named(self, names: Mapping[str, str]) -> "Transcript":
        """The same with the speakers' names, by label."""
        if not any(speaker.label in names for speaker in self.speakers):
            return self
        speakers = tuple(
            speaker.model_copy(update={"name": names.get(speaker.label)}) for speaker in self.speakers
        )
        return self.model_copy(update={"speakers": speakers})
