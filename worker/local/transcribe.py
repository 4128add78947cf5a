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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from spool.domain.options import Diarization
from spool.domain.transcript import AudioFacts, DiarizationFacts, ModelFacts, Transcript
from spool.errors import EngineError, SpoolError
from spool.settings import load_settings
from worker.audio import SAMPLE_RATE, open_audio
from worker.decode.search import resolve_head
from worker.decode.types import DecodeRequest, Hypothesis, SearchOptions
from worker.diarization.base import DiarizationModel, RunSteps, SpeakerBounds, run_here
from worker.diarization.registry import DEFAULT, load_diarization, load_network, place_of
from worker.diarization.takeover import RunsOf, hear
from worker.engine.protocol import Failure, Recognition
from worker.engine.recognizer import ModelRecognizer
from worker.jobs.attempt import TokenContext
from worker.jobs.speakers import with_speakers
from worker.jobs.transcript import audio_facts, decoded_chunk, transcript_of
from worker.local.report import FileResult
from worker.models.base import SpeechModel
from worker.models.load import load_model
from worker.segmentation.chunker import Chunk, ChunkOptions, plan_chunks
from worker.segmentation.spans import ChunkSpan
from worker.speech.listener import SpeechListener, listeners

CHUNKS_AT_ONCE = 16
NOTHING = DecodeRequest()

Blocks = Iterable[NDArray[np.float32]]


@dataclass
class _Decoded:
    """One chunk and what the engine answered; a chunk without speech is never decoded."""

    chunk: Chunk
    answer: Recognition | Failure | None = None


@dataclass
class _File:
    """One file on its way."""

    path: Path
    listeners: list[SpeechListener] = field(default_factory=list)
    chunks: list[_Decoded] = field(default_factory=list)
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
    detector: bool = True,
    diarization: Diarization | None = None,
    diarizer: str = DEFAULT,
) -> list[FileResult]:
    """Each file's result, in order; `ask` goes for all. A file that cannot be read or decoded fails alone.

    carries: language model and phrases go on from chunk to chunk, which are then decoded one after another.
    detector: in chunks, the speech detector listens as it does to jobs. diarization: add who speaks, as jobs
    do; diarizer: by which model, a name or a `.nemo` file. Raises ModelError where a model cannot be loaded
    and InvalidRequest where it cannot be searched so.
    """
    loaded = load_model(model)
    results = transcribe_with(
        loaded, files, options, chunk=chunk, ask=ask, carries=carries, detector=detector
    )
    if diarization is None:
        return results
    is_file = diarizer.endswith(".nemo")
    place = diarizer if is_file else place_of(diarizer, load_settings().diarization_models)
    speaker_model, name = load_diarization(place), Path(diarizer).stem if is_file else diarizer
    loaded_runs: dict[str, RunSteps[Any, Any]] = {}

    def runs(each: DiarizationModel) -> RunSteps[Any, Any]:
        if each.path not in loaded_runs:
            loaded_runs[each.path] = run_here(load_network(each.path))
        return loaded_runs[each.path]

    return [_with_speakers(each, diarization, name, speaker_model, runs) for each in results]


def transcribe_with(
    model: SpeechModel,
    files: Sequence[Path],
    options: SearchOptions,
    *,
    chunk: bool = True,
    ask: DecodeRequest = NOTHING,
    carries: bool = False,
    detector: bool = True,
) -> list[FileResult]:
    """As `transcribe_files`, with a model that is loaded already."""
    if not chunk:
        ask = replace(ask, speech=replace(ask.speech, single=True))
    recognizer = ModelRecognizer(model)
    recognizer.prepare(options, ask)
    decode = partial(_decode, recognizer, options, ask)
    lengths = ChunkOptions(**asdict(model.info.chunking))
    plan = partial(plan_chunks, options=lengths) if chunk else _whole
    states = [_File(path, listeners(1) if chunk and detector else []) for path in files]
    waiting: list[_Decoded] = []
    for state in states:
        context = TokenContext()
        for item in _read(state, plan):
            if carries:
                decode([item], context)
                continue
            waiting.append(item)
            if chunk and len(waiting) == CHUNKS_AT_ONCE:
                decode(waiting)
                waiting = []
    decode(waiting)
    return [_result(model, state, options, ask) for state in states]


def _with_speakers(
    result: FileResult, asked: Diarization, name: str, model: DiarizationModel, runs: RunsOf
) -> FileResult:
    """The result with its speakers; a file that cannot be read once more fails alone."""
    if result.transcript is None:
        return result

    def read() -> Iterator[NDArray[np.float32]]:
        with open_audio(Path(result.file)) as stream:
            for block in stream.blocks():
                yield block[:, 0]

    try:
        heard = hear(model, load_diarization(DEFAULT), read, runs, SpeakerBounds(asked.least, asked.most))
    except SpoolError as error:
        return FileResult(result.file, error=error)
    note = "" if heard.reason is None else heard.reason.sentence(name)
    facts = DiarizationFacts(name=DEFAULT if note else name, sha256=heard.model.digest, note=note)
    segments = {0: heard.diarization.segments}
    return replace(result, transcript=with_speakers(result.transcript, segments, facts))


def _read(state: _File, plan: Callable[..., Iterator[Chunk]]) -> Iterator[_Decoded]:
    """The file's chunks that want a search, as they are read; an error is kept in `state`."""
    try:
        with open_audio(state.path) as stream:
            heard = {"listener": state.listeners[0]} if state.listeners else {}
            for chunk in plan((block[:, 0] for block in stream.blocks()), **heard):
                item = _Decoded(chunk)
                state.chunks.append(item)
                if chunk.speech:
                    yield item
            state.samples = stream.samples_read
            state.facts = audio_facts(state.path.name, stream)
    except SpoolError as error:
        state.error = error


def _whole(blocks: Blocks) -> Iterator[Chunk]:
    """The recording as one chunk that is always searched."""
    pieces = list(blocks)
    samples = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    size = len(samples)
    yield Chunk(ChunkSpan(0, 0, core_start=0, core_end=size, start=0, end=size), samples)


def _decode(
    recognizer: ModelRecognizer,
    options: SearchOptions,
    ask: DecodeRequest,
    waiting: Sequence[_Decoded],
    context: TokenContext | None = None,
) -> None:
    """Decode the chunks as one batch, from where `context` left off; their samples are given up."""
    if not waiting:
        return
    asks = [ask] * len(waiting)
    if context is not None:
        asks = [replace(ask, context=context.before(item.chunk.span)) for item in waiting]
    answers = recognizer.recognize([item.chunk.samples for item in waiting], options, asks)
    for item, answer in zip(waiting, answers, strict=True):
        item.answer, span = answer, item.chunk.span
        item.chunk = Chunk(span, np.zeros(0, np.float32))
        if context is not None and isinstance(answer, Recognition):
            frame = recognizer.info.frame_seconds * SAMPLE_RATE
            context.keep(0, context.after(span, answer.hypotheses[0], frame))


def _result(model: SpeechModel, state: _File, options: SearchOptions, ask: DecodeRequest) -> FileResult:
    name = str(state.path)
    if state.error is not None or state.facts is None:
        return FileResult(name, error=state.error)
    spoken: list[tuple[ChunkSpan, Recognition]] = []
    for item in state.chunks:
        span, answer = item.chunk.span, item.answer
        if isinstance(answer, Failure):
            place = f"{_seconds(span.core_start):.1f} to {_seconds(span.core_end):.1f} s"
            return FileResult(
                name, error=EngineError(f"{state.path.name}: at {place}: {answer.error.message}")
            )
        if answer is not None:
            spoken.append((span, answer))
    transcript = _transcript(model, state, options, ask)
    is_single = len(state.chunks) == len(spoken) == 1
    hypotheses = spoken[0][1].hypotheses if is_single else [_joined(spoken, model.info.frame_seconds)]
    nbest = tuple((each, model.tokenizer.decode(each.tokens).strip()) for each in hypotheses)
    if is_single and not transcript.dropped:  # what the search wrote, marks without words included
        transcript = transcript.model_copy(update={"text": spoken[0][1].text or nbest[0][1]})
    return FileResult(name, None, transcript, model.cost(state.samples).frames, nbest)


def _joined(spoken: Sequence[tuple[ChunkSpan, Recognition]], frame_seconds: float) -> Hypothesis:
    """The chunks' best hypotheses as one, in frames of the file, without tokens outside a chunk's core."""
    samples_a_frame = frame_seconds * SAMPLE_RATE
    rows = []
    for span, answer in spoken:
        hypothesis = answer.hypotheses[0]
        shift = round(span.start / samples_a_frame)
        first, end = span.core_start / samples_a_frame, span.core_end / samples_a_frame
        columns = (hypothesis.tokens, hypothesis.times, hypothesis.durations, hypothesis.confidences)
        for token, time, duration, confidence in zip(*columns, strict=True):
            if first <= time + shift < end or len(spoken) == 1:
                rows.append((token, time + shift, duration, confidence))
    tokens, times, durations, confidences = zip(*rows, strict=True) if rows else ((), (), (), ())
    score = sum(answer.hypotheses[0].score for _, answer in spoken)
    return Hypothesis(tokens, score, times, durations, confidences)


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
        decoded_chunk(item.chunk.span, item.answer if isinstance(item.answer, Recognition) else None)
        for item in state.chunks
    ]
    facts = ModelFacts(name=model.info.name, sha256=model.info.sha256)
    return transcript_of(None, chunks, state.samples, state.facts, facts, asked, listeners=state.listeners)


def _seconds(samples: int) -> float:
    return samples / SAMPLE_RATE
