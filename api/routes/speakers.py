"""The routes of speakers: name them, remember voices, list and forget these, and have speakers found again.
Workers find the speakers.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Response
from sqlalchemy import Connection

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_job
from api.auth.sight import SightDep, refuse_hidden
from api.presenters.jobs import present_speakers
from api.queries import IdempotencyKey
from api.services import ServicesDep
from api.submission.bodies import json_body
from api.submission.jobs import load_detail
from spool.catalogue import diarization_places
from spool.domain.archive.voices import VoiceMatch
from spool.domain.jobs import Job
from spool.domain.retention import Content
from spool.errors import InvalidRequest
from spool.schemas.common import ListOf
from spool.schemas.jobs import DiarizeRequest, HeardSpeakerOut, JobDetail, SpeakerNames, VoiceOut
from spool.store.archive.closed import closed_voices
from spool.store.deletions import refuse_deleted
from spool.store.transcripts import speakers as store
from spool.store.transcripts import voices


def diarize(
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    body: Annotated[DiarizeRequest, json_body(DiarizeRequest)],
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Find a finished job's speakers.

    Or find them again. No word is transcribed again, and the transcript stays available meanwhile.
    """
    offered = diarization_places(services.settings.diarization_models)
    if body.model != "default" and body.model not in offered:
        raise InvalidRequest(
            f"model: there is no such diarization model; available: default, {', '.join(offered)}"
        )
    with services.database.begin() as tx:
        get_visible_job(tx, caller, job_id)
        job, queued = store.diarize_job_once(tx, job_id, body.plain, idempotency_key)
        shown = load_detail(services, tx, job)
    services.sweeper.wake()
    response.status_code = 202 if queued else 200
    return shown


def name(
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    body: Annotated[SpeakerNames, json_body(SpeakerNames)],
) -> ListOf[HeardSpeakerOut]:
    """Name a job's speakers.

    Repeating the same names changes nothing.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
    refuse_hidden(services, caller, job, "Naming its speakers")
    with services.database.begin() as tx:
        job = store.name_speakers(tx, job_id, body.names, remember=body.remember)
        return present_speakers(job, _open_matches(tx, voices.matches(tx, job.id, job.project), job))


def list_speakers(
    services: ServicesDep, caller: CallerDep, sight: SightDep, job_id: str
) -> ListOf[HeardSpeakerOut]:
    """List a job's speakers and who they may be.

    In the order in which they first speak; those with a voice print come with the named voices of the project
    that they resemble. Empty if the job was not asked for speakers, or something of it is closed.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        refuse_deleted(job, Content.TRANSCRIPT)
        matches = _open_matches(tx, voices.matches(tx, job.id, job.project), job)
    view = sight.look_at(services.database, job)
    return present_speakers(job, matches, () if view.hides else None)


def list_voices(services: ServicesDep, caller: CallerDep) -> ListOf[VoiceOut]:
    """List the voices that are recognised.

    The named voices, by project and name; of the key's project if it has one. Without voices that are known
    only from recordings of which something is closed.
    """
    with services.database.read() as tx:
        known = voices.list_voices(tx, caller.project)
        hidden = {one for project in {each.project for each in known} for one in closed_voices(tx, project)}
    found = [each for each in known if each.id not in hidden]
    return ListOf(items=list(map(VoiceOut.of, found)))


def forget_voice(services: ServicesDep, caller: CallerDep, voice_id: str) -> None:
    """Forget a voice.

    Deletes it with all its voice prints. Speakers keep the name.
    """
    with services.database.begin() as tx:
        voices.delete_voice(tx, voice_id, caller.project)


def _open_matches(
    tx: Connection, found: Mapping[str, Sequence[VoiceMatch]], job: Job
) -> dict[str, list[VoiceMatch]]:
    """The voices that are not known from closed recordings alone."""
    hidden = closed_voices(tx, job.project)
    return {label: [each for each in some if each.voice.id not in hidden] for label, some in found.items()}
