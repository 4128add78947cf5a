"""Transcribes files in this process: the engine without queue, database or child process.

With `chunk=False` all files are decoded as one device batch, and `nbest` is the search's n-best list. In
chunks `nbest` has one entry, joined from the best hypothesis of each chunk: its tokens within the core, and
the sum of the scores. Each chunk's own hypotheses are in the transcript's `nbest`.

Imports MLX, so import it only in the process that decodes, and only when it does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from spool.domain.transcript import (
    AudioFacts,
    Lattice,
    ModelFacts,
    NbestText,
    Transcript,
    Word,
)
from spool.errors import EngineError, SpoolError
from worker.audio import SAMPLE_RATE, AudioStream, open_audio
from worker.decode.search import best_of, resolve_head
from worker.decode.types import DecodeRequest, Hypothesis, SearchOptions
from worker.decode.utterances import check_decoding, decode_utterances
from worker.decode.words import SCORE_DIGITS
from worker.jobs.attempt import TokenContext
from worker.jobs.transcript import DecodedChunk, transcript_of
from worker.local.report import FileResult
from worker.models.base import SpeechModel
from worker.models.load import load_model
from worker.segmentation.chunker import Chunk, ChunkOptions, plan_chunks
from worker.segmentation.spans import ChunkSpan

CHUNKS_AT_ONCE = 16
NOTHING = DecodeRequest()

Blocks = Iterable[NDArray[np.float32]]


@dataclass
class _Heard:
    """One chunk and what the search made of it; a chunk without speech is never searched."""

    chunk: Chunk
    hypotheses: Sequence[Hypothesis] = ()
    words: Sequence[Word] = ()
    lattice: Lattice | None = None


@dataclass
class _File:
    """One file on its way."""

    path: Path
    heard: list[_Heard] = field(default_factory=list)
    facts: AudioFacts | None = None
    samples: int = 0
    error: SpoolError | None = None


def transcribe_files(
    files: Sequence[Path],
    model: str,
    options: SearchOptions,
    *,
    chunk: bool = True,
    ask: DecodeRequest = NOTHING,
    carries: bool = False,
) -> list[FileResult]:
    """Each file's result, in order; `ask` goes for all. A file that cannot be read or decoded fails alone.

    carries: language model and phrases go on from chunk to chunk, which are then decoded one after another.
    Raises ModelError where the model cannot be loaded and InvalidRequest where it cannot be searched so.
    """
    return transcribe_with(load_model(model), files, options, chunk=chunk, ask=ask, carries=carries)


def transcribe_with(
    model: SpeechModel,
    files: Sequence[Path],
    options: SearchOptions,
    *,
    chunk: bool = True,
    ask: DecodeRequest = NOTHING,
    carries: bool = False,
) -> list[FileResult]:
    """As `transcribe_files`, with a model that is loaded already."""
    if not chunk:
        ask = replace(ask, speech=replace(ask.speech, single=True))
    check_decoding(model, options, ask)
    lengths = ChunkOptions(**asdict(model.info.chunking))
    plan: Callable[[Blocks], Iterator[Chunk]] = partial(plan_chunks, options=lengths) if chunk else _whole
    states = [_File(path) for path in files]
    waiting: list[_Heard] = []
    for state in states:
        context = TokenContext()
        for heard in _read(state, plan):
            if carries:
                _go_on(model, heard, options, ask, context)
                continue
            waiting.append(heard)
            if chunk and len(waiting) == CHUNKS_AT_ONCE:
                _decode(model, waiting, options, ask)
                waiting = []
    _decode(model, waiting, options, ask)
    return [_result(model, state, options, ask) for state in states]


def _go_on(
    model: SpeechModel, heard: _Heard, options: SearchOptions, ask: DecodeRequest, context: TokenContext
) -> None:
    """Search the chunk from where the one before it left off."""
    chunk = heard.chunk
    _decode(model, [heard], options, replace(ask, context=context.before(chunk.span)))
    if heard.hypotheses:
        context.keep(
            0, context.after(chunk.span, heard.hypotheses[0], model.info.frame_seconds * SAMPLE_RATE)
        )


def _read(state: _File, plan: Callable[[Blocks], Iterator[Chunk]]) -> Iterator[_Heard]:
    """The file's chunks that want a search, as they are read; an error is kept in `state`."""
    try:
        with open_audio(state.path) as stream:
            for chunk in plan(block[:, 0] for block in stream.blocks()):
                heard = _Heard(chunk)
                state.heard.append(heard)
                if chunk.speech:
                    yield heard
            state.samples = stream.samples_read
            state.facts = _facts(state.path, stream)
    except SpoolError as error:
        state.error = error


def _whole(blocks: Blocks) -> Iterator[Chunk]:
    """The recording as one chunk that is always searched."""
    pieces = list(blocks)
    samples = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    size = len(samples)
    yield Chunk(ChunkSpan(0, 0, core_start=0, core_end=size, start=0, end=size), samples)


def _facts(path: Path, stream: AudioStream) -> AudioFacts:
    return AudioFacts(
        name=path.name,
        format=stream.source_format,
        sample_rate=stream.source_rate,
        channels=stream.source_channels,
        duration=_seconds(stream.samples_read),
        warnings=tuple(stream.warnings),
    )


def _decode(
    model: SpeechModel, waiting: Sequence[_Heard], options: SearchOptions, ask: DecodeRequest
) -> None:
    """Search the chunks as one batch and leave with each what was heard; their samples are given up."""
    if not waiting:
        return
    samples = [heard.chunk.samples for heard in waiting]
    answers = decode_utterances(model, samples, options, [ask] * len(waiting))
    for heard, answer in zip(waiting, answers, strict=True):
        heard.hypotheses = answer.hypotheses
        start = _seconds(heard.chunk.span.start)
        if answer.hypotheses:
            heard.words = answer.words(model.tokenizer, model.info.frame_seconds, start, ask.alternatives)
        if ask.lattice is not None:
            seconds = _seconds(len(heard.chunk.samples))
            lattice = answer.lattice(ask.lattice, model.info.frame_seconds, seconds)
            heard.lattice = lattice and lattice.moved(start, channel=0)
        heard.chunk = Chunk(heard.chunk.span, np.zeros(0, np.float32))


def _result(model: SpeechModel, state: _File, options: SearchOptions, ask: DecodeRequest) -> FileResult:
    name = str(state.path)
    if state.error is not None or state.facts is None:
        return FileResult(name, error=state.error)
    spoken = [heard for heard in state.heard if heard.chunk.speech]
    best = []
    for heard in spoken:
        try:
            best.append(best_of(heard.hypotheses))
        except EngineError as error:
            place = (
                f"{_seconds(heard.chunk.span.core_start):.1f} to {_seconds(heard.chunk.span.core_end):.1f} s"
            )
            return FileResult(name, error=EngineError(f"{state.path.name}: at {place}: {error.message}"))
    transcript = _transcript(model, state, options, ask)
    is_single = len(state.heard) == len(spoken) == 1
    hypotheses = spoken[0].hypotheses if is_single else [_joined(spoken, best, model.info.frame_seconds)]
    nbest = tuple((each, model.tokenizer.decode(each.tokens).strip()) for each in hypotheses)
    if is_single:  # what the search wrote, marks without words included
        transcript = transcript.model_copy(update={"text": nbest[0][1]})
    return FileResult(name, None, transcript, model.cost(state.samples).frames, nbest)


def _joined(spoken: Sequence[_Heard], best: Sequence[Hypothesis], frame_seconds: float) -> Hypothesis:
    """The chunks' best hypotheses as one, in frames of the file, without tokens outside a chunk's core."""
    samples_a_frame = frame_seconds * SAMPLE_RATE
    rows = []
    for heard, hypothesis in zip(spoken, best, strict=True):
        shift = round(heard.chunk.span.start / samples_a_frame)
        first, end = (
            heard.chunk.span.core_start / samples_a_frame,
            heard.chunk.span.core_end / samples_a_frame,
        )
        columns = (hypothesis.tokens, hypothesis.times, hypothesis.durations, hypothesis.confidences)
        for token, time, duration, confidence in zip(*columns, strict=True):
            if first <= time + shift < end or len(spoken) == 1:
                rows.append((token, time + shift, duration, confidence))
    tokens, times, durations, confidences = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Hypothesis(tokens, sum(h.score for h in best), times, durations, confidences)


def _transcript(model: SpeechModel, state: _File, options: SearchOptions, ask: DecodeRequest) -> Transcript:
    assert state.facts is not None
    asked: dict[str, JsonValue] = {
        "decoder": options.decoder,
        "beam": options.beam,
        "nbest": options.nbest,
        "head": resolve_head(model, options),
        "alternatives": ask.alternatives,
        "lattice": ask.lattice,
    }
    chunks = [
        DecodedChunk(
            heard.chunk.span,
            tuple(heard.words),
            _nbest(model, heard) if options.nbest > 1 else (),
            heard.lattice,
        )
        for heard in state.heard
    ]
    facts = ModelFacts(name=model.info.name, sha256=model.info.sha256)
    return transcript_of(None, chunks, state.samples, state.facts, facts, asked)


def _nbest(model: SpeechModel, heard: _Heard) -> tuple[NbestText, ...]:
    """What the search found in a chunk."""
    return tuple(
        NbestText(text=model.tokenizer.decode(each.tokens).strip(), score=round(each.score, SCORE_DIGITS))
        for each in heard.hypotheses
    )


def _seconds(samples: int) -> float:
    return samples / SAMPLE_RATE
