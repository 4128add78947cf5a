"""A model with its search, as the engine runs it: utterances in, plain Python results out.

The engine's only module that uses MLX; only the child imports it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.device import on_gpu
from spool.domain.recognition import Recognition
from spool.domain.transcript import ChunkLanguage, NbestText
from spool.errors import EngineError, InvalidRequest
from spool.failpoints import failpoint
from worker.decode.alignment.aligner import label_emissions
from worker.decode.alignment.words import spell_folded
from worker.decode.answer import Answer
from worker.decode.attention.reading import beams_of, read_utterances
from worker.decode.attention.second import SecondReader
from worker.decode.checks import check_context, check_request
from worker.decode.fusion.fusion import find_unspelled
from worker.decode.fusion.spelling import warn_of_unspelled
from worker.decode.search import SEARCHES, answers, check_options, resolve_search
from worker.decode.words import SCORE_DIGITS, text_of
from worker.diarization.registry import is_diarization
from worker.engine.ahead import Front
from worker.engine.diarization import StepRecognizer
from worker.engine.live_steps import LiveSteps
from worker.engine.memory_budget import CACHE_BYTES
from worker.engine.protocol import SAMPLE_RATE, Failure, Recognizer
from worker.engine.text import TextRecognizer
from worker.live.feed import LiveFeed
from worker.models.base import (
    Ahead,
    BatchCost,
    CacheAwareModel,
    LanguageIdentifier,
    ModelInfo,
    ModelWithFront,
    SpeechModel,
    Spelling,
)
from worker.models.load import TextReader, load_reader
from worker.models.requests import DecodeRequest, IdentifyLanguage, SearchOptions


class ModelRecognizer:
    """Runs one acoustic model. Belongs to the thread that made it, as all MLX objects do."""

    info: ModelInfo

    def __init__(self, model: SpeechModel, second: "ModelRecognizer | TextRecognizer | None" = None) -> None:
        """second: the model that orders every utterance's hypotheses. Raises InvalidRequest if it has no
        attention decoder and is no language model."""
        self._model = model
        self._reader = None if second is None else SecondReader(second.model)
        self._live = LiveSteps(model)
        can = model.capabilities
        languages, tasks = tuple(sorted(can.languages)), tuple(sorted(can.tasks))
        reader = None if second is None else second.info.digest
        self.info = replace(
            model.info,
            family=can.family,
            languages=languages,
            tasks=tasks,
            streams=can.streams,
            reader=reader,
        )

    @property
    def model(self) -> SpeechModel:
        """The acoustic model."""
        return self._model

    def read_by(self, reader: Recognizer) -> "ModelRecognizer":
        """This model with `reader` to order its hypotheses. Raises InvalidRequest if `reader` cannot."""
        if not isinstance(reader, ModelRecognizer | TextRecognizer):
            raise InvalidRequest(f"rescoring: {reader.info.name} has no attention decoder")
        return ModelRecognizer(self._model, reader)

    def cost(self, samples: int, options: SearchOptions) -> BatchCost:
        return self._model.cost(samples, 1 if options.decoder == "greedy" else options.beam)

    def prepare(self, request: DecodeRequest) -> ModelInfo:
        """Load the language model, spell the phrases and the words to align, and check the request with the
        model; `warnings` of the result name phrases that it cannot spell. Raises InvalidRequest."""
        if isinstance(request.step, LiveFeed):
            self._live.check(request.search, request.step)
            return self.info
        if isinstance(request.step, IdentifyLanguage):
            self._identifier()
            return self.info
        spelling = self._spelling(request.spell) if request.spell else None
        check_decoding(self._model, request.search, request)
        if self._reader is not None:
            self._reader.check(request, self._model.tokenizer)
        skipped = find_unspelled(self._model.tokenizer, request.phrases)
        warnings = (warn_of_unspelled(skipped),) if skipped else ()
        digest = _digest_of(request)
        return replace(self.info, language_model=digest, warnings=warnings, spelling=spelling)

    def _spelling(self, words: Sequence[str]) -> Spelling:
        if "ctc" not in self._model.heads:
            raise InvalidRequest(
                f"{self.info.name} has no CTC head, which alignment needs; choose a CTC, hybrid or U2++ model"
            )
        spelling = spell_folded(words, self._model.tokenizer)
        if not spelling.labels:
            raise InvalidRequest(f"{self.info.name} has tokens for none of the transcript's words")
        return spelling

    @property
    def front(self) -> Front | None:
        return self._model.front if isinstance(self._model, ModelWithFront) else None

    def recognize(
        self,
        utterances: Sequence[NDArray[np.float32]],
        requests: Sequence[DecodeRequest],
        ahead: Ahead | None = None,
    ) -> list[Recognition | Failure]:
        """One answer per 16 kHz mono utterance, in order; one whose logits are not finite fails alone.

        Raises InvalidRequest for a search the model cannot do. Live sessions' feeds are in separate batches.
        """
        if isinstance(requests[0].step, LiveFeed):
            return self._live.recognize(utterances, requests)
        spoken = [at for at, each in enumerate(requests) if isinstance(each.step, IdentifyLanguage)]
        if spoken:
            return self._identify(utterances, requests, spoken)
        answers = self._decode(utterances, requests, ahead)
        seconds = [len(samples) / SAMPLE_RATE for samples in utterances]
        return [
            self._recognition(answer, length, request)
            for answer, length, request in zip(answers, seconds, requests, strict=True)
        ]

    def _identifier(self) -> LanguageIdentifier:
        model = self._model
        if not (model.capabilities.detects and isinstance(model, LanguageIdentifier)):
            raise InvalidRequest(f"{self.info.name} cannot say which language is spoken")
        return model

    def _identify(
        self,
        utterances: Sequence[NDArray[np.float32]],
        requests: Sequence[DecodeRequest],
        spoken: Sequence[int],
    ) -> list[Recognition | Failure]:
        """The languages of these utterances, and the words of the others."""
        answers: dict[int, Recognition | Failure] = {}
        languages = self._identifier().identify_languages([utterances[at] for at in spoken])
        for at, language in zip(spoken, languages, strict=True):
            frames = round(len(utterances[at]) / SAMPLE_RATE / self.info.frame_seconds)
            answers[at] = Recognition(output=language, frames=frames)
        others = [at for at in range(len(requests)) if at not in answers]
        if others:
            words = self.recognize([utterances[at] for at in others], [requests[at] for at in others])
            answers |= dict(zip(others, words, strict=True))
        return [answers[at] for at in range(len(requests))]

    def _decode(
        self,
        utterances: Sequence[NDArray[np.float32]],
        requests: Sequence[DecodeRequest],
        ahead: Ahead | None,
    ) -> list[Answer]:
        options = requests[0].search
        if self._reader is None:
            return decode_utterances(self._model, utterances, options, requests, ahead)
        listing = options.model_copy(update={"nbest": max(options.beam, options.nbest)})
        answers = decode_utterances(self._model, utterances, listing, requests, ahead)
        failpoint("engine.rescoring")
        ordered = self._reader.order(utterances, answers, self._model.tokenizer, requests)
        return [replace(each, hypotheses=each.hypotheses[: options.nbest]) for each in ordered]

    def _recognition(self, answer: Answer, seconds: float, request: DecodeRequest) -> Recognition | Failure:
        tokenizer, frame_seconds = self._model.tokenizer, self.info.frame_seconds
        try:
            words = answer.words(tokenizer, frame_seconds, alternatives=request.alternatives)
        except EngineError as error:
            return Failure(error, answer.frames)
        several = answer.hypotheses if request.search.nbest > 1 else ()
        language = lattice = None
        if request.lattice is not None:
            lattice = answer.lattice(request.lattice, frame_seconds, seconds)
        if answer.language is not None:
            language = ChunkLanguage(code=answer.language, probabilities=dict(answer.languages))
        return Recognition(
            hypotheses=answer.hypotheses,
            words=tuple(words),
            frames=answer.frames,
            nbest=tuple(
                # Rounded, so that it does not depend on the batch.
                NbestText(text=text_of(each, tokenizer), score=round(each.score, SCORE_DIGITS))
                for each in several
            ),
            lattice=lattice,
            language=language,
            text=answer.text,
            output=answer.emissions,
            makers=replace(self.info, language_model=_digest_of(request)).makers,
        )


def check_decoding(model: SpeechModel, options: SearchOptions, request: DecodeRequest) -> None:
    """Raise InvalidRequest, naming the option, if `decode_utterances` would, before any audio is read."""
    model.prepare(request)
    check_context(model, options)
    check_options(model, options, request)
    if SEARCHES[resolve_search(model, options)] is None:
        beams_of(model, options)  # type: ignore[arg-type]


def decode_utterances(
    model: SpeechModel,
    samples: Sequence[NDArray[np.float32]],
    options: SearchOptions,
    requests: Sequence[DecodeRequest],
    ahead: Ahead | None = None,
) -> list[Answer]:
    """The answers to utterances, [N] float32 at 16 kHz each. An utterance depends only on itself and its
    request. `ahead`: the outputs of the model's front, where already computed. Raises InvalidRequest for what
    the model cannot do."""
    chosen = resolve_search(model, options)
    if SEARCHES[chosen] is None:
        for request in requests:
            check_request(chosen, options, request)
        return read_utterances(model, samples, options, requests)  # type: ignore[arg-type]
    for request in requests:
        model.prepare(request)
    if ahead is not None:
        encoded = cast("ModelWithFront", model).encode(samples, options.att_context, ahead)
    elif options.att_context is None:
        encoded = model.encode(samples)
    else:
        encoded = cast("CacheAwareModel", model).encode(samples, options.att_context)
    mx.eval(encoded.frames)
    found = answers(model, encoded, options, requests, chosen)
    for row, request in enumerate(requests):
        if request.labels:
            frames = encoded.frames[row, : found[row].frames]
            emissions = label_emissions(model.heads["ctc"], frames, request.labels)
            found[row] = replace(found[row], emissions=emissions)
    return found


def _digest_of(request: DecodeRequest) -> str | None:
    """The SHA-256 of the graph or language model, cached until the file changes. Raises InvalidRequest."""
    graph = request.search.graph
    if (path := graph.name if graph is not None else request.language_model) is None:
        return None
    try:
        facts = Path(path).stat()
        return _hash_file(path, facts.st_mtime_ns, facts.st_size)
    except OSError as error:
        raise InvalidRequest(f"{path}: the language model cannot be read: {error.strerror}") from error


@lru_cache(maxsize=16)
def _hash_file(path: str, _changed: int, _size: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def use_device(name: str) -> None:
    """Compute on the GPU ("gpu") or on the CPU ("cpu"). Raises EngineError if there is no GPU."""
    if name == "gpu" and not mx.is_available(mx.gpu):
        raise EngineError("MLX finds no GPU on this machine; set SPOOL_DEVICE=cpu to compute without one.")
    mx.set_default_device(mx.gpu if name == "gpu" else mx.cpu)


def load_recognizer(model: str) -> Recognizer:
    """Load `model` (a folder, a `.nemo` file, a hub id, or a diarization model's network). Raises
    ModelError."""
    if on_gpu():  # a CPU gains nothing from a larger one than MLX's own, and grew by a gigabyte with it
        mx.set_cache_limit(CACHE_BYTES)
    if is_diarization(model):
        return StepRecognizer(model)
    return recognizer_of(load_reader(model))


def recognizer_of(model: SpeechModel | TextReader) -> ModelRecognizer | TextRecognizer:
    """The recognizer of a loaded model."""
    return TextRecognizer(model) if isinstance(model, TextReader) else ModelRecognizer(model)
