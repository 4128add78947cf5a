"""The route that clients of OpenAI's API know: a recording in, its words in the answer.

The recording goes through the same queue as any job, and the answer waits for it; a client that goes away
cancels it. Knows that API's names for what Spool calls otherwise, and refuses what Spool has not, instead of
pretending.
"""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any, Literal, get_args

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_job
from api.problems import Problem
from api.services import Services, ServicesDep
from api.submission.bodies import SMALL
from api.submission.jobs import IdempotencyKey, create_from_upload
from api.submission.uploads import Upload, received_upload
from spool.domain.jobs import Job, JobState
from spool.domain.transcript import Transcript
from spool.errors import Conflict, InvalidRequest
from spool.formats import CONTENT_TYPES, render
from spool.objects.integrity import read_verified
from spool.store.jobs import cancel_job

ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]
FORMATS: tuple[ResponseFormat, ...] = get_args(ResponseFormat)
# What that API's clients send as the model when they know no other.
ITS_MODELS = frozenset(
    {"whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe", "gpt-4o-transcribe-diarize"}
)
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
        "known_speaker_names[]",
        "known_speaker_references[]",
    }
)
MAX_BYTES = 100 * 2**20
WAIT_SECONDS = 900.0
_FIRST_LOOK_S, _LAST_LOOK_S = 0.05, 1.0


async def transcribe(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Transcribe a recording and answer with its words, as OpenAI's `/v1/audio/transcriptions` does."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Problem(415, "unsupported_media_type", "Send multipart/form-data with the part `file`.")
    limit = min(MAX_BYTES, services.settings.upload_max_bytes)
    async with received_upload(request, services.upload_folder, limit, PARTS, SMALL.size) as upload:
        form, granularities = _asked(upload)
        wanted = replace(upload, parts={"request": (_job_request(upload, services),)})
        created, _ = await run_in_threadpool(create_from_upload, services, caller, wanted, idempotency_key)
    services.sweeper.wake()
    try:
        job = await _ended(request, services, caller, created.id)
    except BaseException:
        # The client is gone or has waited too long: its job is nobody's, unless it may ask for it again.
        if idempotency_key is None:
            await asyncio.shield(run_in_threadpool(_cancel, services, created.id))
        raise
    if job.state is not JobState.DONE or job.transcript_key is None:
        code, message = job.error_code or "cancelled", job.error_message or "The job was cancelled."
        raise Problem(422, code, message, job=job.id)
    transcript = await run_in_threadpool(_transcript, services, job)
    return _answer(transcript, form, granularities, {"X-Spool-Job": job.id})


def _asked(upload: Upload) -> tuple[ResponseFormat, frozenset[str]]:
    """The form of the answer, and whether words, segments or both are to be in it."""
    form = _text(upload, "response_format") or "json"
    if form not in FORMATS:
        raise InvalidRequest(f"response_format {form!r} is none of {', '.join(FORMATS)}.")
    granularities = frozenset(_texts(upload, "timestamp_granularities[]")) or frozenset({"segment"})
    if not granularities <= {"word", "segment"}:
        raise InvalidRequest("timestamp_granularities[] holds `word`, `segment` or both.")
    if _texts(upload, "known_speaker_names[]") or _texts(upload, "known_speaker_references[]"):
        raise InvalidRequest("Known speakers are not supported here; name the speakers of a job afterwards.")
    if _text(upload, "stream").lower() in ("true", "1"):
        raise InvalidRequest("Answers are not streamed here; follow a job's progress at /v1/jobs/{id}.")
    return form, granularities


def _job_request(upload: Upload, services: Services) -> bytes:
    """The job that the form asks for. A `prompt` becomes phrases to favour: that is what it is used for."""
    model = _text(upload, "model")
    options: dict[str, Any] = {}
    if model and (model not in ITS_MODELS or model in services.settings.models):
        options["model"] = model
    phrases = [phrase.strip() for phrase in _text(upload, "prompt").split(",") if phrase.strip()]
    if phrases:
        options |= {"decoder": "beam", "boost": {"phrases": phrases}}
    if _text(upload, "response_format") == "diarized_json":
        options["diarization"] = {}
    return json.dumps({"options": options, "name": upload.name}).encode()


def _texts(upload: Upload, name: str) -> list[str]:
    return [part.decode("utf-8", "replace") for part in upload.parts.get(name, ())]


def _text(upload: Upload, name: str) -> str:
    return "".join(_texts(upload, name)[:1])


async def _ended(request: Request, services: Services, caller: Principal, job_id: str) -> Job:
    """The job once it has ended. Raises `Problem` 504 after `WAIT_SECONDS`, CancelledError for a client that
    left."""
    deadline, pause = time.monotonic() + WAIT_SECONDS, _FIRST_LOOK_S
    while True:
        job = await run_in_threadpool(_look, services, caller, job_id)
        if job.state.terminal:
            return job
        if await request.is_disconnected():
            raise asyncio.CancelledError
        if time.monotonic() > deadline:
            raise Problem(
                504,
                "too_long",
                f"The recording was not done within {WAIT_SECONDS:.0f} s; submit it as a job.",
            )
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LAST_LOOK_S)


def _look(services: Services, caller: Principal, job_id: str) -> Job:
    with services.database.read() as tx:
        return get_visible_job(tx, caller, job_id)


def _cancel(services: Services, job_id: str) -> None:
    try:
        with services.database.begin() as tx:
            cancel_job(tx, job_id)
    except Conflict:  # it has ended meanwhile
        return


def _transcript(services: Services, job: Job) -> Transcript:
    record = read_verified(services.objects, job.transcript_key or "", job.transcript_sha256 or "")
    return Transcript.model_validate_json(record)


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
        body["segments"] = [
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
    if form == "verbose_json":
        # `language` is part of that form; models here do not tell one.
        body = {"task": "transcribe", "language": "", "duration": transcript.audio.duration} | body
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


def _letters(label: str | None) -> str:
    """A speaker as that API writes them: A, B, … Z, AA, AB, …; empty where nobody was heard to speak."""
    number = -1 if label is None else int(label.partition("_")[2])
    letters = ""
    while number >= 0:
        number, letter = divmod(number, 26)
        letters, number = chr(ord("A") + letter) + letters, number - 1
    return letters
