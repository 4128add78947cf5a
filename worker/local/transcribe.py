"""Transcribes files in this process: the engine without queue, database or child process.

With `chunk=False` all files are decoded as one device batch, and `nbest` is the search's n-best list. In
chunks `nbest` has one entry, joined from the best hypothesis of each chunk: its tokens within the core, and
the sum of the scores. Each chunk's own hypotheses are in the transcript's `nbest`.

Imports MLX, so import it only in the process that decodes, and only when needed.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from spool.domain.archive.diarization import Diarization
from spool.domain.archive.verbatim import mark_disfluencies
from spool.domain.recognition import ChunkSpan, Hypothesis, Recognition
from spool.domain.transcript import DiarizationFacts, Verbatim
from spool.errors import SpoolError
from spool.settings import load_settings
from worker.audio import SAMPLE_RATE, AudioStream, open_audio
from worker.decode.search import resolve_head
from worker.decode.words import text_of
from worker.diarization.base import DiarizationModel, RunSteps, SpeakerBounds, run_here
from worker.diarization.registry import DEFAULT, load_diarization, load_network, place_of
from worker.diarization.takeover import RunsOf, hear
from worker.engine.protocol import NOTHING, Failure
from worker.engine.recognizer import ModelRecognizer, recognizer_of
from worker.jobs.decoding import ChunkDecoder, languages_of
from worker.jobs.speakers import with_speakers
from worker.local.report import FileResult
from worker.local.witness import check_result, load_listener
from worker.models.base import Independent, SpeechModel
from worker.models.load import TextReader, load_model, load_reader
from worker.models.requests import DecodeRequest, SearchOptions
from worker.segmentation.chunker import Chunk

CHUNKS_AT_ONCE = 10  # of Whisper tiny.en, 21 MB each while they are searched


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
    rescore: tuple[str, float] | None = None,
    diarizer: str = DEFAULT,
    witness: bool = False,
    drop_unsupported: bool = False,
    verbatim: Verbatim = "keep",
) -> list[FileResult]:
    """Each file's result, in order; `ask` applies to all. A file that cannot be read or decoded fails alone.

    carries: language model and phrases continue from chunk to chunk, which are then decoded one by one.
    detector: in chunks, use the speech detector as jobs do. diarization: add who speaks, as jobs do;
    diarizer: the model for it, a name or a `.nemo` file. rescore: a model whose attention decoder orders the
    hypotheses, or a language model (a folder, or an ARPA file over the model's tokens), and its weight.
    witness: check the words against their sounds; drop_unsupported: leave out the segments that these do not
    support. verbatim: as of jobs. Raises ModelError if a model cannot be loaded and
    InvalidRequest if it does not support the options.
    """
    listener = load_listener() if witness else None
    loaded = load_model(model)
    second = None
    if rescore is not None:
        second, weight = load_reader(rescore[0]), rescore[1]
        options = options.model_copy(update={"reader": rescore[0]})
        ask = ask.model_copy(update={"reader_weight": weight})
    results = transcribe_with(
        loaded, files, options, chunk=chunk, ask=ask, carries=carries, detector=detector, second=second
    )
    if diarization is not None:
        results = _diarize(results, diarization, diarizer)
    if listener is not None:
        results = [check_result(listener, each, drop=drop_unsupported) for each in results]
    known = languages_of(loaded.info)
    return [
        each
        if each.transcript is None or verbatim == "keep"
        else replace(each, transcript=mark_disfluencies(each.transcript, verbatim, known))
        for each in results
    ]


def _diarize(results: Sequence[FileResult], diarization: Diarization, diarizer: str) -> list[FileResult]:
    """The results with their speakers."""
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
    second: SpeechModel | TextReader | None = None,
    lengths: Independent | None = None,
) -> list[FileResult]:
    """Like `transcribe_files`, with loaded models; `second` is the one that rescores.

    lengths: chunk lengths, instead of the model's own.
    """
    if not chunk:
        ask = ask.model_copy(update={"single": True})
    request = ask.model_copy(update={"search": options, "carries": carries})
    engine = LocalEngine(model, request, CHUNKS_AT_ONCE if chunk else None, second)
    if lengths is not None:
        engine.info = replace(engine.info, chunking=lengths)
    decoders = [_FileDecoder(path, engine, chunk, request=request, info=engine.info) for path in files]
    for decoder in decoders:
        decoder.read(detector=detector)
    return [decoder.result(model) for decoder in decoders]


def _with_speakers(
    result: FileResult, diarization: Diarization, name: str, model: DiarizationModel, runs: RunsOf
) -> FileResult:
    """The result with its speakers; a file that cannot be read a second time fails alone."""
    if result.transcript is None:
        return result

    def read() -> Iterator[NDArray[np.float32]]:
        with open_audio(Path(result.file)) as stream:
            for block in stream.blocks():
                yield block[:, 0]

    try:
        diarized = hear(
            model, load_diarization(DEFAULT), read, runs, SpeakerBounds(diarization.least, diarization.most)
        )
    except SpoolError as error:
        return FileResult(result.file, error=error)
    note = "" if diarized.reason is None else diarized.reason.sentence(name)
    facts = DiarizationFacts(name=DEFAULT if note else name, sha256=diarized.model.digest, note=note)
    segments, activity = {0: diarized.diarization.segments}, {0: diarized.diarization.activity}
    return replace(result, transcript=with_speakers(result.transcript, segments, facts, activity))


class LocalEngine:
    """Decodes submitted chunks in this thread, `at_once` of them as one batch; None: all."""

    def __init__(
        self,
        model: SpeechModel,
        request: DecodeRequest,
        at_once: int | None,
        second: SpeechModel | TextReader | None = None,
    ) -> None:
        own = ModelRecognizer(model)
        self._recognizer = own if second is None else own.read_by(recognizer_of(second))
        self._at_once = at_once
        self.info = self._recognizer.prepare(request)
        self._waiting: list[tuple[NDArray[np.float32], DecodeRequest, Future[Recognition]]] = []

    def submit(self, samples: NDArray[np.float32], request: DecodeRequest) -> Future[Recognition]:
        """Queue a chunk; it is decoded when the batch is full, or by `flush`."""
        future: Future[Recognition] = Future()
        self._waiting.append((samples, request, future))
        if len(self._waiting) == self._at_once:
            self.flush()
        return future

    def flush(self) -> None:
        """Decode the waiting chunks."""
        if not self._waiting:
            return
        samples, requests, futures = zip(*self._waiting, strict=True)
        self._waiting = []
        for future, answer in zip(futures, self._answers(samples, requests), strict=True):
            if isinstance(answer, Failure):
                future.set_exception(answer.error)
            else:
                future.set_result(answer)

    def _answers(
        self, samples: Sequence[NDArray[np.float32]], requests: Sequence[DecodeRequest]
    ) -> list[Recognition | Failure]:
        """Decode one batch; if that fails, each utterance by itself, so that a bad one fails alone."""
        try:
            return list(self._recognizer.recognize(samples, requests))
        except SpoolError as error:
            if len(samples) == 1:
                return [Failure(error, 0)]
            return [self._answers([row], [own])[0] for row, own in zip(samples, requests, strict=True)]


@dataclass(slots=True)
class LocalDecoder(ChunkDecoder):
    """A file whose chunks are decoded in this process."""

    path: Path
    engine: LocalEngine

    @property
    def name(self) -> str:
        return self.path.name

    def submit(self, chunk: Chunk, request: DecodeRequest) -> Future[Recognition]:
        """Submit to the engine that all files share."""
        return self.engine.submit(chunk.samples, request)

    def wait_for_answers(self, seconds: float) -> set[Future[Recognition]]:
        """Decode the waiting chunks, since no other thread does; returns the finished futures."""
        if seconds:
            self.engine.flush()
        return {future for future in self.in_flight if future.done()}


@dataclass(slots=True)
class _FileDecoder(LocalDecoder):
    """One file being decoded, in chunks or as one chunk that is always decoded."""

    chunk: bool
    audio: AudioStream | None = None
    spoken: list[tuple[ChunkSpan, Recognition]] = field(default_factory=list)
    error: SpoolError | None = None

    def keep(self, answers: Sequence[tuple[ChunkSpan, Recognition]]) -> None:
        """Keep decoded chunks for the result."""
        for span, answer in answers:
            if answer.hypotheses:
                self.spoken.append((span, answer))
            self.add(self.place_chunk(span, answer))

    def plan(self, audio: AudioStream, *, detector: bool) -> Iterable[Chunk]:
        """The chunks as for jobs, or the whole file as one chunk."""
        return super(_FileDecoder, self).plan(audio, detector=detector) if self.chunk else _whole(audio)

    def read(self, *, detector: bool) -> None:
        """Send the file's chunks to the engine; an error is kept for the result."""
        try:
            with open_audio(self.path) as self.audio:
                self.send(self.plan(self.audio, detector=detector))
        except SpoolError as error:
            self.error = error

    def result(self, model: SpeechModel) -> FileResult:
        """The file's transcript and hypotheses once everything is decoded, or its error."""
        try:
            if self.error is not None:
                raise self.error
            self.finish()
        except SpoolError as error:
            return FileResult(str(self.path), error=error)
        assert self.audio is not None
        request, options = self.request, self.request.search
        facts: dict[str, JsonValue] = {
            "decoder": options.decoder,
            "beam": options.beam,
            "nbest": options.nbest,
            "head": resolve_head(model, options),
            "alternatives": request.alternatives,
            "lattice": request.lattice,
        }
        transcript = self.transcript(self.audio, None, facts)
        is_single = len(self.decoded) == len(self.spoken) == 1
        joined = _join_hypotheses(self.spoken, model.info.frame_seconds)
        hypotheses = self.spoken[0][1].hypotheses if is_single else [joined]
        nbest = tuple((each, text_of(each, model.tokenizer)) for each in hypotheses)
        if is_single and not transcript.dropped:  # the search's text, including marks outside words
            transcript = transcript.model_copy(update={"text": self.spoken[0][1].text or nbest[0][1]})
        frames = model.cost(self.audio.samples_read).frames
        chunks = tuple(sorted((each.span for each in self.decoded), key=lambda span: span.core_start))
        return FileResult(str(self.path), None, transcript, frames, nbest, chunks)


def _whole(audio: AudioStream) -> Iterator[Chunk]:
    samples = np.concatenate([block[:, 0] for block in audio.blocks()])
    size = len(samples)
    yield Chunk(ChunkSpan(0, 0, core_start=0, core_end=size, start=0, end=size), samples)


def _join_hypotheses(spoken: Sequence[tuple[ChunkSpan, Recognition]], frame_seconds: float) -> Hypothesis:
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
