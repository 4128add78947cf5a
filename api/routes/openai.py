"""The routes that clients of OpenAI's API know: a recording in, its words in the answer.

The recording goes through the same queue as any job, ahead of jobs for which nobody waits; a client that
disconnects cancels it. Translates that API's names into Spool's, and refuses what Spool does not support
instead of ignoring it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal, get_args

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_job
from api.auth.sight import READER
from api.delivery.sse import KEEP_ALIVE_S, EventResponse
from api.fleet_view import FleetView
from api.openapi.document import BINARY, TEXT, form
from api.presenters.transcripts import read_record
from api.problems import Problem
from api.queries import IdempotencyKey
from api.services import Services, ServicesDep
from api.submission.bodies import SMALL
from api.submission.jobs import cancel_unless_ended, create_from_upload
from api.submission.openai_models import ITS_MODELS
from api.submission.uploads import Upload, receive_upload
from spool import clock
from spool.catalogue.entries import load_catalogue
from spool.domain.archive.verbatim import leave_out
from spool.domain.jobs import Job, JobState
from spool.domain.spacing import is_apart, join_words
from spool.domain.transcript import Transcript
from spool.errors import InvalidRequest
from spool.formats import CONTENT_TYPES, render
from spool.settings import Settings
from spool.store.archive.closed import closed_parts_of
from spool.store.chunks import load_settled_texts
from spool.store.jobs import get_job

Task = Literal["transcribe", "translate"]
ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]
FORMATS: tuple[ResponseFormat, ...] = get_args(ResponseFormat)
STREAMED: tuple[ResponseFormat, ...] = ("json", "text", "diarized_json")
PARTS = frozenset(
    {
        "model",
        "response_format",
        "timestamp_granularities[]",
        "language",
        "prompt",
        "temperature",
        "stream",
        "include[]",
        "chunking_strategy",
        "chunking_strategy[type]",
        "chunking_strategy[prefix_padding_ms]",
        "chunking_strategy[silence_duration_ms]",
        "chunking_strategy[threshold]",
        "known_speaker_names[]",
        "known_speaker_references[]",
    }
)
MEDIA = {
    "application/json": {"type": "object", "properties": {"text": TEXT}},
    **dict.fromkeys(("text/plain", "application/x-subrip", "text/vtt"), TEXT),
    "text/event-stream": TEXT | {"description": "With `stream`: that API's events."},
}
FORM = form("The recording.", None) | {
    "properties": {
        "file": BINARY,
        "model": TEXT | {"description": "A model of this server. Default: the server's default model."},
        "response_format": TEXT | {"enum": list(FORMATS)},
        "timestamp_granularities[]": {"type": "array", "items": TEXT | {"enum": ["word", "segment"]}},
        "language": TEXT | {"description": "The language spoken, such as `en`. Default: detect it."},
        "prompt": TEXT
        | {
            "description": "Preceding text, for attention decoders (Whisper); for other models words and "
            "phrases to favour, separated by commas."
        },
    },
}
# Families whose decoder reads preceding text.
PROMPTED = frozenset({"whisper", "canary"})
MAX_BYTES = 100 * 2**20
WAIT_SECONDS = 900.0
UNSERVED_SECONDS = 20.0
"""For how long no worker may be able to take a job: a worker that restarts is back sooner."""
CLIENT_LEFT = 499
_FIRST_LOOK_S, _LAST_LOOK_S = 0.05, 1.0


async def transcribe(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Transcribe (compatible with OpenAI's API).

    Transcribe a recording and answer with its words, as OpenAI's `/v1/audio/transcriptions` does.
    """
    return await _run(request, services, caller, idempotency_key, "transcribe")


async def translate(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Translate into English (compatible with OpenAI's API).

    Answer with a recording's words in English, as OpenAI's `/v1/audio/translations` does.
    """
    return await _run(request, services, caller, idempotency_key, "translate")


async def _run(
    request: Request, services: Services, caller: Principal, idempotency_key: str | None, task: Task
) -> Response:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Problem(415, "unsupported_media_type", "Send multipart/form-data with the part `file`.")
    limit = min(MAX_BYTES, services.settings.upload_max_bytes)
    async with receive_upload(request, services.upload_folder, limit, PARTS, SMALL.size) as upload:
        form, granularities = _parse_form(upload)
        body = await run_in_threadpool(_job_request, upload, services, task)
        wanted = replace(upload, parts={"request": (body,)})
        answer_by = clock.now() + timedelta(seconds=WAIT_SECONDS)
        created, _ = await run_in_threadpool(
            create_from_upload, services, caller, wanted, idempotency_key, answer_by
        )
        streamed = _is_streamed(upload)
    services.sweeper.wake()
    if streamed:
        answer = _stream(request, services, caller, created.id, form, keep=idempotency_key is not None)
        return EventResponse(answer, headers={"X-Spool-Job": created.id, "Cache-Control": "no-store"})
    try:
        job = await _wait_for_end(request, services, caller, created.id)
    except BaseException as error:
        # The client has left or waited too long, so nobody needs the job, unless its key lets it ask again.
        if idempotency_key is None:
            await asyncio.shield(run_in_threadpool(cancel_unless_ended, services, created.id))
        if isinstance(error, _ClientLeft):
            return Response(status_code=CLIENT_LEFT)  # for the log; the client has left
        raise
    transcript = await run_in_threadpool(_read_transcript, services, job)
    return _answer(transcript, form, granularities, {"X-Spool-Job": job.id})


def _parse_form(upload: Upload) -> tuple[ResponseFormat, frozenset[str]]:
    """The format of the answer, and whether it includes words, segments or both."""
    form = _text(upload, "response_format") or "json"
    if form not in FORMATS:
        raise InvalidRequest(f"response_format {form!r} is not one of {', '.join(FORMATS)}.")
    granularities = frozenset(_texts(upload, "timestamp_granularities[]")) or frozenset({"segment"})
    if not granularities <= {"word", "segment"}:
        raise InvalidRequest("timestamp_granularities[] takes `word`, `segment` or both.")
    if _texts(upload, "known_speaker_names[]") or _texts(upload, "known_speaker_references[]"):
        raise InvalidRequest("Known speakers are not supported here; name the speakers of a job afterwards.")
    if _is_streamed(upload) and form not in STREAMED:
        raise InvalidRequest(f"stream: {form} cannot be streamed; {' and '.join(STREAMED)} can.")
    return form, granularities


def _is_streamed(upload: Upload) -> bool:
    return _text(upload, "stream").lower() in ("true", "1")


def _job_request(upload: Upload, services: Services, task: Task) -> bytes:
    """The job that the form asks for. A `prompt` is passed on to models that read prompts; for others it
    becomes phrases to favour, which is what it is used for. Options that the model lacks fail the job by
    name."""
    model = _text(upload, "model")
    options: dict[str, Any] = {}
    if model and (model not in ITS_MODELS or model in services.settings.models):
        options["model"] = model
    if task != "transcribe":
        options["task"] = task
    if language := _text(upload, "language"):
        options["language"] = language
    prompt = _text(upload, "prompt").strip()
    phrases = [phrase.strip() for phrase in prompt.split(",") if phrase.strip()]
    if prompt and reads_prompts(services.fleet, services.settings, options.get("model")):
        options["prompt"] = prompt
    elif phrases:
        options |= {"decoder": "beam", "boost": {"phrases": phrases}}
    if _text(upload, "response_format") == "diarized_json":
        options["diarization"] = {}
    return json.dumps({"options": options, "name": upload.name}).encode()


def reads_prompts(fleet: FleetView, settings: Settings, model: str | None) -> bool:
    """Whether the model, by default the fleet's, has an attention decoder, according to its workers, or to
    the catalogue if none has loaded it yet."""
    name = model or fleet.default()
    known = (worker.model_facts.get(name) for worker in fleet.recent().workers)
    if families := {facts.family for facts in known if facts is not None and facts.family}:
        return families <= PROMPTED
    place, catalogue = settings.models.get(name, ""), load_catalogue()
    return catalogue.has(place) and catalogue.find(place).family in PROMPTED


def _texts(upload: Upload, name: str) -> list[str]:
    return [part.decode("utf-8", "replace") for part in upload.parts.get(name, ())]


def _text(upload: Upload, name: str) -> str:
    return "".join(_texts(upload, name)[:1])


async def _stream(
    request: Request,
    services: Services,
    caller: Principal,
    job_id: str,
    form: ResponseFormat,
    *,
    keep: bool,
) -> AsyncIterator[str]:
    """The answer as that API's events: a delta for each chunk as it is decoded, then the text. With speakers,
    which are known last, its segments come at the end. Errors are events too; a client that disconnects
    cancels its job, unless `keep`."""
    ending = asyncio.ensure_future(_wait_for_end(request, services, caller, job_id))
    chunks, streamed, silent_since = 0, "", clock.monotonic()
    try:
        while not ending.done():
            await asyncio.wait({ending}, timeout=_LAST_LOOK_S)
            texts: list[str] = []
            if form != "diarized_json":
                texts = await run_in_threadpool(_read_settled, services, job_id, chunks)
            chunks += len(texts)
            if delta := join_words(texts):
                delta = f" {delta}" if streamed and is_apart(streamed, delta) else delta
                streamed, silent_since = streamed + delta, clock.monotonic()
                yield _event({"type": "transcript.text.delta", "delta": delta})
            elif clock.monotonic() - silent_since > KEEP_ALIVE_S:
                silent_since = clock.monotonic()
                yield ": keep-alive\n\n"
        transcript = await run_in_threadpool(_read_transcript, services, ending.result())
        if form == "diarized_json":
            for segment in _segments_by_speaker(transcript):
                yield _event(segment)
        elif transcript.text.startswith(streamed) and (rest := transcript.text[len(streamed) :]):
            yield _event({"type": "transcript.text.delta", "delta": rest})
        yield _event({"type": "transcript.text.done", "text": transcript.text})
    except Problem as problem:
        yield _event({"error": {"code": problem.code, "message": problem.detail, "type": "spool"}})
    except BaseException as error:
        if not keep:
            await asyncio.shield(run_in_threadpool(cancel_unless_ended, services, job_id))
        if not isinstance(error, _ClientLeft):
            raise
    finally:
        ending.cancel()


def _event(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"


def _read_settled(services: Services, job_id: str, first: int) -> list[str]:
    with services.database.read() as tx:
        if closed_parts_of(tx, get_job(tx, job_id)):
            return []
        return load_settled_texts(tx, job_id, first)


class _ClientLeft(Exception):
    """The client closed its connection before the answer."""


async def _wait_for_end(request: Request, services: Services, caller: Principal, job_id: str) -> Job:
    """The job once it has ended. Raises `Problem` 504 after `WAIT_SECONDS`, 503 if no worker can take the job
    for `UNSERVED_SECONDS`, and `_ClientLeft`."""
    deadline, pause = clock.monotonic() + WAIT_SECONDS, _FIRST_LOOK_S
    served = clock.monotonic()
    while True:
        job = await run_in_threadpool(_look, services, caller, job_id)
        if job.state.terminal:
            return job
        if await request.is_disconnected():
            raise _ClientLeft
        missing = await run_in_threadpool(services.fleet.waiting_for, [job])
        if not missing:
            served = clock.monotonic()
        elif clock.monotonic() - served > UNSERVED_SECONDS:
            sentence = f"No worker can take the recording: it waits for {missing[job_id]}."
            raise Problem(503, "no_worker", sentence, {"Retry-After": "60"})
        if clock.monotonic() > deadline:
            raise Problem(
                504,
                "too_long",
                f"The transcript was not ready within {WAIT_SECONDS:.0f} s; submit the recording as a job.",
            )
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LAST_LOOK_S)


def _look(services: Services, caller: Principal, job_id: str) -> Job:
    with services.database.read() as tx:
        return get_visible_job(tx, caller, job_id)


def _read_transcript(services: Services, job: Job) -> Transcript:
    """The transcript of a job that has ended. Raises `Problem` 422 if it has none."""
    if job.state is not JobState.DONE or job.transcript_key is None:
        code, message = job.error_code or "cancelled", job.error_message or "The job was cancelled."
        raise Problem(422, code, message, job=job.id)
    return leave_out(READER.look_at(services.database, job).show(read_record(services.objects, job)))


def _answer(
    transcript: Transcript, form: ResponseFormat, granularities: frozenset[str], headers: dict[str, str]
) -> Response:
    if form == "text":
        return Response(transcript.text + "\n", headers=headers, media_type=CONTENT_TYPES["txt"])
    if form in ("srt", "vtt"):
        return Response(render(transcript, form), headers=headers, media_type=CONTENT_TYPES[form])
    body: dict[str, Any] = {"text": transcript.text}
    if form == "diarized_json":
        body = {"task": "transcribe", "duration": transcript.audio.duration} | body
        body["segments"] = _segments_by_speaker(transcript)
    if form == "verbose_json":
        body = {
            "task": transcript.options.get("task", "transcribe"),
            "language": transcript.language or "",  # if the model detects it
            "duration": transcript.audio.duration,
        } | body
        if "word" in granularities:
            body["words"] = [
                {"word": word.text, "start": word.start, "end": word.end, "confidence": word.confidence}
                for word in transcript.words
            ]
        if "segment" in granularities:
            body["segments"] = [
                {"id": at, "start": one.start, "end": one.end, "text": one.text}
                for at, one in enumerate(transcript.segments)
            ]
    return Response(json.dumps(body), headers=headers, media_type="application/json")


def _segments_by_speaker(transcript: Transcript) -> list[dict[str, Any]]:
    return [
        {
            "type": "transcript.text.segment",
            "id": f"seg_{at}",
            "start": one.start,
            "end": one.end,
            "text": one.text,
            "speaker": _letters(one.speaker),
        }
        for at, one in enumerate(transcript.segments)
    ]


def _letters(label: str | None) -> str:
    """A speaker's label as that API writes it: A, B, … Z, AA, AB, …; empty without a speaker."""
    number = -1 if label is None else int(label.partition("_")[2])
    letters = ""
    while number >= 0:
        number, letter = divmod(number, 26)
        letters, number = chr(ord("A") + letter) + letters, number - 1
    return letters
