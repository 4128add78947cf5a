"""Aligns an existing transcript with its recording in this process: the words come from the text, the times
and scores from a CTC head.

Imports MLX, so import it only in the process that aligns, and only when needed.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from spool.domain.archive.alignment import Typescript
from spool.domain.recognition import ChunkSpan, DecodedChunk
from spool.domain.transcript import ModelFacts, Transcript
from spool.errors import InvalidRequest
from worker.audio import SAMPLE_RATE, open_audio
from worker.decode.alignment.recording import PlacedWord
from worker.engine.protocol import Failure
from worker.engine.recognizer import ModelRecognizer
from worker.jobs.align.assembly import (
    align_text,
    chunk_request,
    emissions_in_core,
    refuse_too_many,
    spell_request,
    with_places,
)
from worker.jobs.transcript import audio_facts, place_chunk, transcript_of
from worker.models.base import ModelInfo, SpeechModel, TextAligner
from worker.segmentation.chunker import Chunk, ChunkOptions, plan_channels

CHUNKS_AT_ONCE = 16


def align_file(model: SpeechModel, path: Path, text: Typescript) -> Transcript:
    """The text's words with the times at which they are spoken in the recording (all channels mixed).

    `Transcript.alignment` has the mean of its words' scores and whether that reaches `MATCH_SCORE`. Raises
    InvalidRequest for a model without a CTC head, a text without a word that the model can spell, and a text
    too long for the recording; and what `open_audio` raises.
    """
    if isinstance(model, TextAligner):
        return _align_whole(model, path, text)
    heard = hear_file(model, path, text)
    return align_text(heard.transcript, heard.chunks, text, heard.info)


def _align_whole(model: TextAligner, path: Path, text: Typescript) -> Transcript:
    """As `align_file`, by a model that places words in one pass over the recording."""
    blocks: list[NDArray[np.float32]] = []
    with open_audio(path) as audio:
        refuse_too_long(path.name, model, audio.known_length.expected_seconds)
        for block in audio.blocks():
            blocks.append(block[:, 0])
            refuse_too_long(path.name, model, audio.samples_read / SAMPLE_RATE)
    samples = np.concatenate([np.zeros(0, np.float32), *blocks])
    refuse_too_many(path.name, text, len(samples) / SAMPLE_RATE)
    placed, end = [], 0.0
    for word, place in zip(text.texts, model.place(samples, text.texts), strict=True):
        # A word without a sound stands where the one before it ends.
        start, end = (end, end) if place is None else (place.start, place.end)
        placed.append(PlacedWord(word, start, end, None if place is None else place.share))
    whole = DecodedChunk(ChunkSpan(0, 0, 0, len(samples), 0, len(samples), speech=False))
    facts = ModelFacts(name=model.info.name, sha256=model.info.sha256)
    options: dict[str, JsonValue] = {"align": text.kept.model_dump(mode="json")}
    heard = transcript_of(None, [whole], len(samples), audio_facts(path.name, audio), facts, options)
    return with_places(heard, text, placed)


def refuse_too_long(name: str, model: TextAligner, seconds: float | None) -> None:
    """Raise InvalidRequest for a recording that is longer than the model takes."""
    if seconds is not None and seconds > model.longest_seconds:
        raise InvalidRequest(
            f"{name}: {model.info.name} aligns recordings of at most {model.longest_seconds:g} s; cut it, or "
            "align with a model that has a CTC head"
        )


class HeardFile(NamedTuple):
    """A CTC head's transcript of a recording, and its emissions for the requested words."""

    transcript: Transcript
    chunks: list[DecodedChunk]
    info: ModelInfo


def hear_file(model: SpeechModel, path: Path, text: Typescript) -> HeardFile:
    """Decode the recording with emissions for the words of a text, for alignment; raises as `align_file`."""
    recognizer = ModelRecognizer(model)
    info = recognizer.prepare(spell_request(text))
    with open_audio(path) as audio:
        chunks = plan_channels(audio.blocks(), 1, ChunkOptions(**asdict(info.chunking)))
        decoded = list(_decode(recognizer, info, chunks))
    facts = ModelFacts(name=info.name, sha256=info.sha256)
    options: dict[str, JsonValue] = {"align": text.kept.model_dump(mode="json")}
    heard = transcript_of(None, decoded, audio.samples_read, audio_facts(path.name, audio), facts, options)
    return HeardFile(heard, decoded, info)


def _decode(recognizer: ModelRecognizer, info: ModelInfo, chunks: Iterable[Chunk]) -> Iterator[DecodedChunk]:
    """All chunks of the recording, decoded batch by batch."""
    assert info.spelling is not None
    request = chunk_request(info.spelling)
    waiting = iter(chunks)
    while batch := list(itertools.islice(waiting, CHUNKS_AT_ONCE)):
        yield from (DecodedChunk(each.span) for each in batch if not each.speech)
        spoken = [each for each in batch if each.speech]
        if not spoken:
            continue
        answers = recognizer.recognize([each.samples for each in spoken], [request] * len(spoken))
        for each, answer in zip(spoken, answers, strict=True):
            if isinstance(answer, Failure):
                raise answer.error
            emissions = emissions_in_core(each.span, answer, info.frame_seconds)
            yield replace(place_chunk(each.span, answer), emissions=emissions)
