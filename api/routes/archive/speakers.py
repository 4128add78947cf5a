"""The routes of speakers: ask who speaks in a job that is done, and name them.

Names stay with the job: every format of its transcript has them, also after the speakers were found anew. How
speakers are found is the workers' business.
"""

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_job
from api.openapi.jobs import Words, answer, problems
from api.presenters.jobs import shown_speakers
from api.services import Services, ServicesDep
from api.submission.bodies import SMALL, read_json
from api.submission.jobs import IdempotencyKey, detail_of
from spool.catalogue import diarization_places
from spool.errors import InvalidRequest
from spool.schemas.examples import jobs
from spool.schemas.jobs import DiarizeRequest, JobDetail, SpeakerNames, SpeakersOut, inline_schema
from spool.store.transcripts import speakers as store

DIARIZE: Words = {
    "summary": "Find a finished job's speakers",
    "status_code": 202,
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": inline_schema(DiarizeRequest),
                    "example": jobs.DIARIZE_REQUEST,
                }
            },
        }
    },
    "responses": {
        **answer(202, "The job, queued again; its transcript stays meanwhile.", JobDetail, jobs.JOB_QUEUED),
        **answer(
            200,
            "The idempotency key was used for the same request before: the job as it is now.",
            JobDetail,
            jobs.JOB_DETAIL,
        ),
        **problems("malformed", "not_found", "conflict", "deleted", "too_large", "invalid_request"),
    },
}

NAME: Words = {
    "summary": "Name a job's speakers",
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": inline_schema(SpeakerNames),
                    "example": jobs.SPEAKER_NAMES,
                }
            },
        }
    },
    "responses": {
        **answer(200, "The speakers with their names.", SpeakersOut, jobs.SPEAKERS),
        **problems("malformed", "not_found", "conflict", "deleted", "too_large", "invalid_request"),
    },
}


async def diarize(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Find out who speaks in a job that is done, or find it out anew. No word is transcribed again."""
    body = await read_json(request, DiarizeRequest, SMALL)
    job, done = await run_in_threadpool(_queue, services, caller, job_id, body, idempotency_key)
    services.sweeper.wake()
    response.status_code = 202 if done else 200
    return job


def _queue(
    services: Services, caller: Principal, job_id: str, asked: DiarizeRequest, key: str | None
) -> tuple[JobDetail, bool]:
    known = diarization_places(services.settings.diarization_models)
    if asked.model != "default" and asked.model not in known:
        raise InvalidRequest(
            f"model: there is no such diarization model; known here: default, {', '.join(known)}"
        )
    with services.database.begin() as tx:
        get_visible_job(tx, caller, job_id)
        job, done = store.diarize_job_once(tx, job_id, asked.plain, key)
        return detail_of(services, tx, job), done


async def name(request: Request, services: ServicesDep, caller: CallerDep, job_id: str) -> SpeakersOut:
    """Name the speakers of a job's transcript. Naming them again in the same way changes nothing."""
    body = await read_json(request, SpeakerNames, SMALL)
    return await run_in_threadpool(_name, services, caller, job_id, body)


def _name(services: Services, caller: Principal, job_id: str, body: SpeakerNames) -> SpeakersOut:
    with services.database.begin() as tx:
        get_visible_job(tx, caller, job_id)
        return SpeakersOut(items=shown_speakers(store.name_speakers(tx, job_id, body.names)) or [])
