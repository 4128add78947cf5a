"""From what a CTC head heard in the chunks of a recording to the transcript with the words of a given text.

The same for jobs and for `spool-worker align`. Knows words and numbers; knows no engine and no store.
"""

import itertools
from collections.abc import Callable, Sequence

from spool.domain.archive.alignment import Typescript
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.domain.spacing import join_words
from spool.domain.transcript import AlignmentFacts, DiarizationFacts, Speaker, Transcript, Turn, Word
from spool.errors import InvalidRequest
from worker.decode.alignment.emissions import Emissions
from worker.decode.alignment.recording import PlacedWord, RecordingFrames, core_emissions, place_words
from worker.models.base import ModelInfo, Spelling
from worker.models.requests import DecodeRequest, SearchOptions
from worker.segmentation.segments import segments_of

SEARCH = SearchOptions(head="ctc")
"""How the chunks are decoded; the words that are heard are where text and recording are matched."""
MATCH_SCORE = 0.14
"""A text whose words score less on the average is said not to belong to its recording. Measured by
`python -m ops.accuracy.typescripts`, see docs/align.md."""
WORDS_A_SECOND = 10
"""More than anybody speaks: a longer text is refused rather than squeezed into the recording."""
NAMED = DiarizationFacts(name="typescript", sha256="")
"""What told the speakers apart where the text names them."""


def spell_request(text: Typescript) -> DecodeRequest:
    """What is asked of the model before the recording is read: the text's words in its tokens."""
    return DecodeRequest(spell=tuple(dict.fromkeys(text.texts)), search=SEARCH)


def chunk_request(spelling: Spelling) -> DecodeRequest:
    """What each chunk is asked."""
    return DecodeRequest(labels=spelling.labels, search=SEARCH)


def emissions_in_core(span: ChunkSpan, heard: Recognition, frame_seconds: float) -> bytes | None:
    """What the head says of the text's tokens in the chunk's core; None for silence."""
    emissions: Emissions | None = heard.output
    return None if emissions is None else core_emissions(span, emissions, frame_seconds).pack()


def refuse_too_many(name: str, text: Typescript, seconds: float | None) -> None:
    """Raise InvalidRequest for a text that nobody could speak in so short a recording."""
    if seconds is not None and len(text.words) > max(1.0, seconds) * WORDS_A_SECOND:
        raise InvalidRequest(
            f"{name}: the transcript has {len(text.words)} words, too many for {seconds:.1f} s of audio"
        )


def align_text(
    heard: Transcript,
    chunks: Sequence[DecodedChunk],
    text: Typescript,
    info: ModelInfo,
    check: Callable[[], None] = lambda: None,
) -> Transcript:
    """The words of the text at their times, in place of the words `heard` in these chunks. `check` is called
    now and then and may raise to stop. Raises InvalidRequest as `refuse_too_many` does."""
    duration = heard.audio.duration
    refuse_too_many(heard.audio.name, text, duration)
    assert info.spelling is not None
    kept = [(chunk.span, chunk.emissions) for chunk in chunks]
    frames = RecordingFrames(
        [(span, Emissions.unpack(data)) for span, data in kept if data is not None],
        info.spelling,
        info.frame_seconds,
    )
    return with_places(heard, text, place_words(text.texts, info.spelling, heard.words, frames, check))


def with_places(heard: Transcript, text: Typescript, placed: Sequence[PlacedWord]) -> Transcript:
    """The transcript with the text's words where they were placed."""
    duration = heard.audio.duration
    scored = [word.score for word in placed if word.score is not None]
    score = round(sum(scored) / len(scored), 3) if scored else 0.0
    facts = AlignmentFacts(sha256=text.sha256, score=score, belongs=score >= MATCH_SCORE)
    aligned = heard.model_copy(
        update={
            "alignment": facts,
            "warnings": (*heard.warnings, *_warnings(score, placed)),
            "text": join_words(text.texts),
            "words": tuple(_word(each, duration) for each in placed),
        }
    )
    return _with_named_speakers(aligned, [word.speaker for word in text.words])


def _word(word: PlacedWord, duration: float) -> Word:
    start = min(round(word.start, 3), duration)
    end = max(start, min(round(word.end, 3), duration))
    return Word(text=word.text, start=start, end=end, confidence=min(1.0, round(word.score or 0.0, 3)))


def _warnings(score: float, placed: Sequence[PlacedWord]) -> tuple[str, ...]:
    warnings = []
    if score < MATCH_SCORE:
        warnings.append(
            f"The text does not seem to belong to this recording: its score is {score:.2f}, "
            f"below {MATCH_SCORE:.2f}."
        )
    unspelled = [word.text for word in placed if word.score is None]
    if unspelled:
        first = ", ".join(dict.fromkeys(unspelled[:5]))
        warnings.append(
            f"The model has no tokens for {len(unspelled)} of {len(placed)} words, among them: {first}. "
            "They are placed between their neighbours."
        )
    return tuple(warnings)


def _with_named_speakers(transcript: Transcript, names: Sequence[str | None]) -> Transcript:
    """The transcript with its segments, and with the speakers that the text names."""
    in_order = dict.fromkeys(name for name in names if name is not None)
    if not in_order:
        return transcript.model_copy(update={"segments": tuple(segments_of(transcript.words))})
    labels = {name: f"speaker_{number}" for number, name in enumerate(in_order)}
    words = tuple(
        word.model_copy(update={"speaker": labels[name] if name is not None else None})
        for word, name in zip(transcript.words, names, strict=True)
    )
    turns = []
    for label, group in itertools.groupby(words, key=lambda word: word.speaker):
        own = list(group)
        if label is not None:
            turns.append(Turn(start=own[0].start, end=own[-1].end, speaker=label))
    speakers = tuple(
        Speaker(
            label=label,
            name=name,
            talk_seconds=round(sum(turn.end - turn.start for turn in turns if turn.speaker == label), 3),
            words=sum(word.speaker == label for word in words),
        )
        for name, label in labels.items()
    )
    named = {"words": words, "segments": tuple(segments_of(words)), "speakers": speakers}
    return transcript.model_copy(update={**named, "turns": tuple(turns), "diarization": NAMED})
