"""Which language is spoken in a recording whose model knows only one, as a multilingual Whisper hears it.

A model hears every language as its own, so it cannot tell. Where a worker has a multilingual Whisper too,
that one listens to a few chunks, spread over the recording. What it hears is saved with the job and is not
part of the transcript, which does not depend on what else a worker has (law 7). Where it fails, no warning is
given.
The limits were measured: docs/accuracy.md.
"""

import contextlib
from collections.abc import Sequence
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import structlog

from spool.catalogue import load_catalogue
from spool.domain.transcript import ChunkLanguage, LanguageSpan
from spool.errors import EngineError, ModelError
from spool.settings import Settings
from spool.store.passes import load_passes
from worker.audio import SAMPLE_RATE
from worker.engine.model_cache import file_size
from worker.jobs.attempt import Attempt
from worker.jobs.channel_listener import ChannelListener
from worker.jobs.decoding import WAIT_SECONDS
from worker.jobs.doubts import clock
from worker.models.base import ModelFiles
from worker.models.requests import DecodeRequest, IdentifyLanguage
from worker.models.whisper.config import is_multilingual
from worker.segmentation.chunker import Chunk

LONGEST_SECONDS = 30.0
"""Of one window of a Whisper."""
SURE = 0.8
"""The least probability of a language that contradicts the model's. English of Chinese learners was taken for
Chinese with up to 0.67."""
ONLY_SECONDS, ONLY_SURE = 10.0, 0.9
"""Of a chunk that is the only one."""

log = structlog.get_logger(__name__)


class Listening(NamedTuple):
    """A model that detects languages, by its name here, its place and the bytes of its weights."""

    name: str
    place: str
    size: int


def multilingual_models(settings: Settings) -> list[Listening]:
    """Those on this machine, the smallest first."""
    found = [
        Listening(name, place, size)
        for name, place in settings.models.items()
        if _detects(place) and (size := file_size(place))
    ]
    return sorted(found, key=lambda each: (each.size, each.name))


@lru_cache(maxsize=256)
def _detects(place: str) -> bool:
    path = Path(place).expanduser()
    if path.exists():
        return is_multilingual(ModelFiles(path, path.name).config)
    catalogue = load_catalogue()
    if not catalogue.has(place):
        return False
    entry = catalogue.find(place)
    return entry.family == "whisper" and len(entry.languages) > 1


def find_listener(attempt: Attempt, languages: Sequence[str]) -> Listening | None:
    """The model that listens to this job, if its own knows only one of `languages` and both fit into the
    memory for models together."""
    options = attempt.claim.job.options
    if len(languages) != 1 or options.align is not None or not attempt.context.settings.language_check:
        return None
    found = multilingual_models(attempt.context.settings)
    room = attempt.context.engine.options.model_cache.budget_bytes
    if not found or found[0].size + file_size(attempt.model) > room:
        return None
    return found[0]


class LanguagePass:
    """Listens to a few places of one claimed job's recording."""

    def __init__(self, attempt: Attempt, model: Listening, language: str) -> None:
        """language: the only one that the job's own model knows."""
        self._attempt = attempt
        self._model = model
        self._language = language

    def listen(self, places: Sequence[Chunk], path: Path) -> None:
        """Save what is spoken there, unless an earlier attempt did. Raises what stops the attempt."""
        if not places or self._is_saved():
            return
        mode = self._attempt.claim.job.options.channels
        listener = ChannelListener(self._attempt, "language", path, 0, mode)
        request = DecodeRequest(step=IdentifyLanguage())
        longest = round(LONGEST_SECONDS * SAMPLE_RATE)
        asked = ((chunk.samples[:longest], request) for chunk in places)
        try:
            mark = self._digest()
            heard = listener.listen(lambda: list(listener.run(self._model.place, asked)))
        except (ModelError, EngineError) as error:
            log.warning("language not identified", model=self._model.name, error=error.message)
            return
        spans = [
            span_of(chunk, spoken, self._language)
            for chunk, spoken in zip(places, heard, strict=True)
            if spoken is not None
        ]
        log.info("languages", heard=[span.language for span in spans])
        listener.save(replace(listener.made(mark), languages=tuple(spans)))

    def _is_saved(self) -> bool:
        with self._attempt.context.db.read() as tx:
            return bool(load_passes(tx, self._attempt.claim.job.id, "language"))

    def _digest(self) -> str:
        answer = self._attempt.context.engine.describe(self._model.place)
        while True:
            with contextlib.suppress(NotYet):
                return answer.result(WAIT_SECONDS).digest
            self._attempt.check()


def span_of(chunk: Chunk, spoken: ChunkLanguage, language: str) -> LanguageSpan:
    """What is spoken in the chunk, whose words were written in `language`."""
    return LanguageSpan(
        start=round(chunk.span.core_start / SAMPLE_RATE, 3),
        end=round(chunk.span.core_end / SAMPLE_RATE, 3),
        channel=chunk.span.channel,
        language=spoken.code,
        probability=spoken.probabilities[spoken.code],
        read_as=None if spoken.code == language else language,
    )


def warn_of_language(
    job_id: str, model: str, heard: Sequence[LanguageSpan], settings: Settings
) -> str | None:
    """The warning for a job by this model, if one other language is spoken at half of the places or more."""
    sure = [span for span in heard if span.read_as is not None and (span.probability or 0) >= _least(heard)]
    codes = [span.language for span in sure]
    code = max(sorted(set(codes)), key=codes.count, default=None)
    if code is None or codes.count(code) < min(2, len(heard)) or 2 * codes.count(code) < len(heard):
        return None
    first = next(span for span in sure if span.language == code)
    if len(heard) == 1 and first.end - first.start < ONLY_SECONDS:
        return None
    known = multilingual_models(settings)
    again = known[-1].name if known else "whisper-base"
    at = clock(first.start)
    where = f"at {at}" if len(heard) == 1 else f"at {codes.count(code)} of {len(heard)} places, first at {at}"
    return (
        f"The speech sounds like {code} {where}, and {model} knows only {first.read_as}. Listen to it, or "
        f"transcribe it in that language: spool rerun {job_id} --model {again} --language {code}"
    )


def _least(heard: Sequence[LanguageSpan]) -> float:
    return ONLY_SURE if len(heard) == 1 else SURE
