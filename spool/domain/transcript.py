"""The transcript as it is stored: words with times, segments, coverage, n-best lists and lattices.

Pure data; times are seconds from the start of the recording. The JSON form of `Transcript` is the record, and
`spool.formats` renders every other form from it. A lattice covers one chunk: its states are numbered so that
every arc leads to a higher one, state 0 is the start, and weights are natural logarithms: the sum of
`acoustic` and `lm` along a path and of its end is the path's score.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from spool.domain.archive.stretch import Stretch
from spool.domain.spacing import join_words

_CODE = "[a-z]{2,3}"


def parse_language(value: object) -> object:
    """The canonical form of a choice of languages: None for `auto`, a code, or codes in order, each once."""
    if value == "auto":
        return None
    if isinstance(value, str):
        return _check_language(value)
    if isinstance(value, list | tuple | set) and all(isinstance(code, str) for code in value):
        codes = tuple(sorted(map(_check_language, set(value))))
        return codes[0] if len(codes) == 1 else codes
    return value


def _check_language(code: str) -> str:
    if not re.fullmatch(_CODE, code):
        raise ValueError(f"'{code}' is not a language code, which has two or three letters, such as en")
    return code


def language_of_text(text: str | None) -> str | tuple[str, ...] | None:
    """The value of a command line's `auto`, `de` or `de,fr`."""
    codes = tuple(sorted({code.strip() for code in (text or "auto").split(",") if code.strip()}))
    if codes in ((), ("auto",)):
        return None
    return codes[0] if len(codes) == 1 else codes


LanguageCode = Annotated[str, Field(pattern=f"^{_CODE}$")]
Language = Annotated[
    LanguageCode | Annotated[tuple[LanguageCode, ...], Field(min_length=2, max_length=20)] | None,
    BeforeValidator(parse_language),
]


NO_EVIDENCE = 0.01
"""A word of less evidence is not supported by the sound."""


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,
    )


class LatticeArc(_Frozen):
    """One word between two states. `confidence` is its probability; `lm` is the score of a language model and
    boosted phrases. A token without text is an arc with an empty word."""

    source: Annotated[int, Field(alias="from", ge=0)]
    target: Annotated[int, Field(alias="to", ge=0)]
    word: str
    start: float
    end: float
    acoustic: float
    lm: float
    confidence: Annotated[float, Field(ge=0, le=1)]


class LatticeEnd(_Frozen):
    """A state where a path may end, and the weight of ending there."""

    state: Annotated[int, Field(ge=0)]
    acoustic: float
    lm: float


class Lattice(_Frozen):
    """One chunk's lattice. `prune`: arcs are kept whose best path is within this distance of the best path's
    score. `times`: for each state, when the words before it have ended."""

    start: Annotated[float, Field(ge=0)]
    end: Annotated[float, Field(ge=0)]
    channel: int = 0
    prune: float
    score: float
    frame_seconds: Annotated[float, Field(gt=0)]
    times: tuple[float, ...]
    arcs: tuple[LatticeArc, ...]
    ends: tuple[LatticeEnd, ...]

    def shift(self, seconds: float, channel: int) -> "Lattice":
        """A copy, `seconds` later."""

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
"""`speaker_0` speaks first, `speaker_1` second, and so on. Naming a speaker does not change it."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Alternative(_Record):
    """Another word that was recognised over the time of one, and its probability."""

    text: str
    confidence: Share


Verbatim = Literal["keep", "mark", "omit"]
Disfluency = Literal["filler", "repetition", "false_start"]


class Word(_Record):
    """One word. `confidence` is 0 to 1: the word's probability in a beam, or the lowest probability of its
    tokens in greedy search. `alternatives`, if requested, are other words over its time, most probable first.
    `doubtful`: the speech detector found no speech over its time. `speaker` is a label of
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
    evidence: Annotated[Share | None, Field(exclude_if=lambda value: value is None)] = None
    """How well the sound supports it, if a witness was asked and could tell."""
    disfluency: Annotated[Disfluency | None, Field(exclude_if=lambda value: value is None)] = None
    """What it is besides a word of the sentence, if the job's `verbatim` asks for marks."""
    omitted: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Every text leaves it out: segments' too, subtitles and exports."""


def text_of_words(words: Iterable[Word]) -> str:
    """The text of words in order, without those that are left out."""
    return join_words(word.text for word in words if not word.omitted)


class NbestText(_Record):
    """One hypothesis of a chunk. `score` is its natural-log probability, higher is better, including scores
    of a language model and boosted phrases; comparable only within its chunk."""

    text: str
    score: float


class ChunkNbest(_Record):
    """The hypotheses of one stretch of one channel, best first."""

    start: Seconds
    end: Seconds
    channel: int = 0
    hypotheses: tuple[NbestText, ...]


class Segment(_Record):
    """A stretch of one channel to be read as a unit. `first_word` and `last_word` index the words."""

    start: Seconds
    end: Seconds
    text: str
    channel: int
    first_word: int
    last_word: int
    speaker: Annotated[SpeakerLabel | None, Field(exclude_if=lambda value: value is None)] = None
    evidence: Annotated[Share | None, Field(exclude_if=lambda value: value is None)] = None
    """How well the sound supports it, if a witness was asked and could tell."""
    flagged: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """The sound does not support it."""


class Turn(_Record):
    """One speaker from `start` to `end`; turns of two speakers may overlap."""

    start: Seconds
    end: Seconds
    speaker: SpeakerLabel
    channel: int = 0


class Speaker(_Record):
    """One speaker. `name` is the name that a person gave. `talk_seconds` is the length of their turns,
    `words` the number of their words; `channel` is set if the channel was kept separate."""

    label: SpeakerLabel
    name: str | None = None
    talk_seconds: Seconds
    words: int
    channel: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None


def recount_speakers(speakers: Iterable[Speaker], words: Iterable[Word]) -> tuple[Speaker, ...]:
    """The speakers, each with the number of their words."""
    own = Counter(word.speaker for word in words)
    return tuple(each.model_copy(update={"words": own[each.label]}) for each in speakers)


class DroppedSegment(_Record):
    """A segment left out of the transcript, since the speech detector found no speech over any of its words,
    or, if `flagged`, since the sound does not support it."""

    start: Seconds
    end: Seconds
    text: str
    channel: int
    flagged: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    words: tuple[Word, ...]


class SpeechSpan(_Record):
    """The speech detector's verdict on a stretch of one channel. `no_speech` needs no decoding; `unclear` has
    no speech for too short a time, or none for certain. `silent`: nobody speaks, and nothing in it is above
    -60 dBFS; louder sound without speech may be music or noise."""

    start: Seconds
    end: Seconds
    label: Literal["speech", "no_speech", "unclear"]
    channel: int = 0
    silent: Annotated[bool, Field(exclude_if=lambda value: not value)] = False


class ChunkLanguage(_Record):
    """The language that one chunk was decoded in, and the likeliest ones with their probabilities; none if
    detection was not requested."""

    code: str
    probabilities: dict[str, Share] = {}


class LanguageSpan(_Record):
    """The language of one chunk, smoothed over the recording. `probability`: the model's, None if the
    language was given. `read_as`: the language that the chunk was decoded in, if it differs."""

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
    """How much of the input was processed (law 6): `ratio` is 1 when every sample was in a chunk's core. Of
    these samples `speech_seconds` were decoded by the engine and `skipped_seconds` passed over as silence or
    without detected speech. `speech`: the share of detected speech within half a second of a word; None if
    none was detected, or detection was off."""

    audio_seconds: Seconds
    covered_seconds: Seconds
    speech_seconds: Seconds
    skipped_seconds: Seconds = 0.0
    ratio: Annotated[float, Field(ge=0, le=1)]
    gaps: tuple[Gap, ...] = ()
    speech: Annotated[Share | None, Field(exclude_if=lambda value: value is None)] = None


class AudioFacts(_Record):
    """The source file. `complete`: whether `duration` is all that the file's header states; None if the file
    does not state its length. `missing_seconds` is None if unknown."""

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
    """Which weights were used; for a language model, which file."""

    name: str
    sha256: str


class DiarizationFacts(ModelFacts):
    """The model that told speakers apart; note: a remark, such as that another model took over."""

    note: Annotated[str, Field(exclude_if=lambda value: not value)] = ""


class AlignmentFacts(_Record):
    """How well an existing transcript fits its recording. sha256: of its words and their speakers; score: the
    mean confidence of those of its words that the model can spell; belongs: whether that is enough for a text
    of this recording."""

    sha256: str
    score: Share
    belongs: bool


class WitnessFacts(ModelFacts):
    """The phoneme model that checked the words. words_without_evidence: how many it found no evidence for;
    abstained: why it judged nothing."""

    words_without_evidence: Annotated[int, Field(ge=0)] = 0
    abstained: Annotated[str, Field(exclude_if=lambda value: not value)] = ""


class UncoveredSpeech(_Record):
    """Clear speech, as a witness hears it, over which there is no word."""

    start: Seconds
    end: Seconds
    channel: Annotated[int, Field(exclude_if=lambda value: not value)] = 0


class Correction(_Record):
    """A person's correction of the words `first_word` to `last_word`, counted as recognised: their text is
    `original`. text: None if unchanged; speaker: None if unchanged. `at` is UTC. In the corrected transcript
    they are `words` words, the first of them at `word`."""

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


class ClosedSpan(_Record):
    """A stretch that is closed to readers; end: None for the recording's. until: a time in UTC, None for
    good."""

    start: Seconds
    end: Seconds | None
    until: str | None


class Transcript(_Record):
    """One recording's words."""

    schema_version: Literal["spool.transcript/1"] = SCHEMA
    job: str | None = None
    audio: AudioFacts
    model: ModelFacts
    language_model: ModelFacts | None = None
    options: dict[str, JsonValue]
    warnings: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Requested options that could not be applied, and what speaks against the words."""
    coverage: Coverage
    text: str
    words: tuple[Word, ...]
    segments: tuple[Segment, ...]
    nbest: tuple[ChunkNbest, ...] = ()
    """Each searched chunk's hypotheses, if more than one was requested; chunks may overlap slightly."""
    lattice: Annotated[tuple[Lattice, ...], Field(exclude_if=lambda value: not value)] = ()
    """Each searched chunk's lattice, if requested, by time and channel."""
    speech: Annotated[tuple[SpeechSpan, ...], Field(exclude_if=lambda value: not value)] = ()
    """Where somebody speaks, by channel and time; the spans of a channel cover it without a gap."""
    dropped: Annotated[tuple[DroppedSegment, ...], Field(exclude_if=lambda value: not value)] = ()
    language: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """The language spoken for most of the time; None if the model detects none."""
    languages: Annotated[tuple[LanguageSpan, ...], Field(exclude_if=lambda value: not value)] = ()
    """The language of each chunk that has words, by channel and time."""
    speakers: Annotated[tuple[Speaker, ...], Field(exclude_if=lambda value: not value)] = ()
    """In the order in which they first speak; empty if not requested, and if nobody speaks."""
    turns: Annotated[tuple[Turn, ...], Field(exclude_if=lambda value: not value)] = ()
    """Who speaks when, by start."""
    diarization: Annotated[DiarizationFacts | None, Field(exclude_if=lambda value: value is None)] = None
    """The model that told the speakers apart; absent if not requested."""
    alignment: Annotated[AlignmentFacts | None, Field(exclude_if=lambda value: value is None)] = None
    """For a transcript whose words were given; absent if they were recognised."""
    stretch: Annotated[Stretch | None, Field(exclude_if=lambda value: value is None)] = None
    """What of another job's transcript was replaced by words of `model`; the other words are that job's, as
    they were corrected."""
    witness: Annotated[WitnessFacts | None, Field(exclude_if=lambda value: value is None)] = None
    """What checked the words against their sounds; absent if not requested."""
    speech_without_words: Annotated[
        tuple[UncoveredSpeech, ...], Field(exclude_if=lambda value: not value)
    ] = ()
    """Where the witness heard clear speech without a word, by start."""
    corrections: Annotated[tuple[Correction, ...], Field(exclude_if=lambda value: not value)] = ()
    """People's corrections; never in the stored record."""
    closed: Annotated[tuple[ClosedSpan, ...], Field(exclude_if=lambda value: not value)] = ()
    """What is closed to readers; never in the stored record. Where it is not opened, `[closed]` stands for
    its words."""

    @property
    def uncovered_seconds(self) -> float:
        """How much clear speech has no words, according to the witness."""
        return round(sum(each.end - each.start for each in self.speech_without_words), 3)

    def with_names(self, names: Mapping[str, str]) -> "Transcript":
        """A copy whose speakers have these names, by label, and no others."""
        if all(speaker.name == names.get(speaker.label) for speaker in self.speakers):
            return self
        speakers = tuple(
            speaker.model_copy(update={"name": names.get(speaker.label)}) for speaker in self.speakers
        )
        return self.model_copy(update={"speakers": speakers})
