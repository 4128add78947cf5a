"""Aligns an existing transcript with its recording in this process: the words are the text's, the times and
scores a CTC head's.

Imports MLX, so import it only in the process that aligns, and only when it does.
"""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import JsonValue

from spool.domain.transcript import DiarizationFacts, ModelFacts, Speaker, Transcript, Turn, Word
from spool.errors import InvalidRequest
from spool.formats.typescripts import SpokenWord
from worker.audio import SAMPLE_RATE, AudioStream, open_audio
from worker.decode.alignment.aligner import CtcModel
from worker.decode.alignment.recording import PlacedWord, RecordingFrames, place_words, spell_folded
from worker.jobs.transcript import audio_facts, coverage_of
from worker.models.base import SpeechModel
from worker.segmentation.chunker import Chunk, ChunkOptions, plan_channels
from worker.segmentation.segments import segments_of
from worker.segmentation.spans import ChunkSpan

CHUNKS_AT_ONCE = 16
MATCH_SCORE = 0.15
"""A text whose words score less on the average is said not to belong to its recording. Measured by
`python -m ops.accuracy.typescripts`, see docs/align.md."""
WORDS_A_SECOND = 10
"""More than anybody speaks: a longer text is refused rather than squeezed into the recording."""
NAMED = DiarizationFacts(name="typescript", sha256="")
"""What told the speakers apart where the text names them."""


def align_file(model: SpeechModel, path: Path, words: Sequence[SpokenWord]) -> Transcript:
    """The text's words with the times at which they are spoken in the recording (all channels mixed).

    `Transcript.options["alignment"]` has the text's hash, `score` (the mean of its words' scores, 0 to 1) and
    `belongs`: whether that is at least `MATCH_SCORE`. Raises InvalidRequest for a model without a CTC head, a
    text without a word that the model can spell and one that nobody could speak in so short a time, and what
    `open_audio` raises.
    """
    ctc = _ctc_model(model)
    spelled = spell_folded([word.text for word in words], model.tokenizer)
    if not any(tokens for _, tokens in spelled):
        raise InvalidRequest(f"{path.name}: {model.info.name} has tokens for none of the transcript's words")
    with open_audio(path) as audio, RecordingFrames(ctc, spelled) as frames:
        spans = _listen(audio, frames, ChunkOptions(**asdict(model.info.chunking)))
        duration = audio.samples_read / SAMPLE_RATE
        if len(words) > max(1.0, duration) * WORDS_A_SECOND:
            raise InvalidRequest(
                f"{path.name}: the transcript has {len(words)} words, too many for {duration:.1f} s of audio"
            )
        placed = place_words(ctc, spelled, frames)
    facts = audio_facts(path.name, audio)
    scored = [word.score for word in placed if word.score is not None]
    score = round(sum(scored) / len(scored), 3) if scored else 0.0
    text = " ".join(word.text for word in words)
    options: dict[str, JsonValue] = {
        "alignment": {
            "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "score": score,
            "belongs": score >= MATCH_SCORE,
        }
    }
    return _with_named_speakers(
        Transcript(
            audio=facts,
            model=ModelFacts(name=model.info.name, sha256=model.info.sha256),
            options=options,
            warnings=_warnings(score, placed),
            coverage=coverage_of(spans, audio.samples_read),
            text=text,
            words=tuple(_word(each, facts.duration) for each in placed),
            segments=(),
        ),
        [word.speaker for word in words],
    )


def _ctc_model(model: SpeechModel) -> CtcModel:
    if "ctc" not in model.heads:
        raise InvalidRequest(
            f"{model.info.name} has no CTC head, which alignment needs; choose a CTC, hybrid or U2++ model"
        )
    return model


def _listen(audio: AudioStream, frames: RecordingFrames, lengths: ChunkOptions) -> list[ChunkSpan]:
    """All chunks of the recording into `frames`, batch by batch."""
    spans: list[ChunkSpan] = []
    waiting: list[Chunk] = []
    for chunk in plan_channels(audio.blocks(), 1, lengths):
        spans.append(chunk.span)
        if chunk.speech:
            waiting.append(chunk)
        if len(waiting) == CHUNKS_AT_ONCE:
            frames.add(waiting)
            waiting = []
    if waiting:
        frames.add(waiting)
    return spans


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
