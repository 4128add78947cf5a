"""The routes of speakers: find who speaks in a finished job, name them, and recognise their voices.

Names belong to the job: every format of its transcript has them, also after speakers were found again.
Workers find the speakers.
"""

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_job
from api.openapi.jobs import answer, describe, json_body, no_content, problems
from api.presenters.jobs import present_voice_matches
from api.services import Services, ServicesDep
from api.submission.bodies import SMALL, read_json
from api.submission.jobs import IdempotencyKey, load_detail
from spool.catalogue import diarization_places
from spool.domain.retention import Content
from spool.errors import InvalidRequest
from spool.schemas.examples import jobs
from spool.schemas.jobs import (
    DiarizeRequest,
    JobDetail,
    SpeakerNames,
    SpeakersOut,
    VoiceOut,
    VoicesOut,
)
from spool.store.deletions import refuse_deleted
from spool.store.transcripts import speakers as store
from spool.store.transcripts import voices

DIARIZE = describe(
    "Find a finished job's speakers",
    answer(202, "The job, queued again; its transcript stays available.", JobDetail, jobs.JOB_QUEUED),
    answer(
        200,
        "The idempotency key was used for the same request before: the job as it is now.",
        JobDetail,
        jobs.JOB_DETAIL,
    ),
    problems("malformed", "not_found", "conflict", "deleted", "too_large", "invalid_request"),
    status_code=202,
    openapi_extra=json_body(DiarizeRequest, jobs.DIARIZE_REQUEST),
)

NAME = describe(
    "Name a job's speakers",
    answer(200, "The speakers with their names.", SpeakersOut, jobs.SPEAKERS),
    problems("malformed", "not_found", "conflict", "deleted", "too_large", "invalid_request"),
    openapi_extra=json_body(SpeakerNames, jobs.SPEAKER_NAMES),
)


LIST = describe(
    "List a job's speakers and who they may be",
    answer(200, "The speakers, with the named voices they resemble.", SpeakersOut, jobs.SPEAKERS),
    problems("not_found", "deleted"),
)

VOICES = describe(
    "List the voices that are recognised",
    answer(200, "The voices, by project and name.", VoicesOut, jobs.VOICES),
)

FORGET = describe(
    "Forget a voice",
    no_content("The voice and its prints were deleted; names stay."),
    problems("not_found"),
    status_code=204,
)


async def diarize(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Find the speakers of a finished job, or find them again. No word is transcribed again."""
    body = await read_json(request, DiarizeRequest, SMALL)
    job, done = await run_in_threadpool(_queue, services, caller, job_id, body, idempotency_key)
    services.sweeper.wake()
    response.status_code = 202 if done else 200
    return job


def _queue(
    services: Services, caller: Principal, job_id: str, asked: DiarizeRequest, key: str | None
) -> tuple[JobDetail, bool]:
    offered = diarization_places(services.settings.diarization_models)
    if asked.model != "default" and asked.model not in offered:
        raise InvalidRequest(
            f"model: there is no such diarization model; available: default, {', '.join(offered)}"
        )
    with services.database.begin() as tx:
        get_visible_job(tx, caller, job_id)
        job, done = store.diarize_job_once(tx, job_id, asked.plain, key)
        return load_detail(services, tx, job), done


async def name(request: Request, services: ServicesDep, caller: CallerDep, job_id: str) -> SpeakersOut:
    """Name the speakers of a job's transcript. Repeating the same names changes nothing."""
    body = await read_json(request, SpeakerNames, SMALL)
    return await run_in_threadpool(_name, services, caller, job_id, body)


def _name(services: Services, caller: Principal, job_id: str, body: SpeakerNames) -> SpeakersOut:
    with services.database.begin() as tx:
        get_visible_job(tx, caller, job_id)
        job = store.name_speakers(tx, job_id, body.names, remember=body.remember)
        return present_voice_matches(job, voices.matches(tx, job.id, job.project))


def list_speakers(services: ServicesDep, caller: CallerDep, job_id: str) -> SpeakersOut:
    """The speakers of a job's transcript; those with a voice print come with the named voices of the project
    that they resemble. Empty if the job was not asked for speakers."""
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        refuse_deleted(job, Content.TRANSCRIPT)
        return present_voice_matches(job, voices.matches(tx, job.id, job.project))


def list_voices(services: ServicesDep, caller: CallerDep) -> VoicesOut:
    """The named voices, of the key's project if it has one."""
    with services.database.read() as tx:
        return VoicesOut(
            items=[
                VoiceOut(id=voice.id, project=project, name=voice.name, recordings=voice.recordings)
                for project, voice in voices.list_voices(tx, caller.project)
            ]
        )


def forget_voice(services: ServicesDep, caller: CallerDep, voice_id: str) -> None:
    """Delete a voice with all its voice prints. Speakers keep the name."""
    with services.database.begin() as tx:
        voices.delete_voice(tx, voice_id, caller.project)
