"""The routes of recordings: a link for a player, and the recording's bytes, whole or in part.

Recordings in the object store, in a bucket or under an allowed folder are passed on; web addresses are not
fetched on behalf of callers. Answers have a media type of audio, or one that no browser executes.
"""

import mimetypes
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.auth.authentication import CallerDep, authenticate, count_caller, rule_name
from api.auth.principal import Principal, get_visible_job
from api.auth.sight import CLOSED_PARAMETER, Sight, SightDep, may_open
from api.auth.signed_urls import HOLDS_SECONDS, sign_link, verify_link
from api.problems import Problem
from api.recordings.heard import silence_recording
from api.recordings.ranges import send
from api.recordings.source import Recording, find_recording, refuse_unheard
from api.recordings.wav_file import MEDIA_TYPE, WavFile
from api.services import Services, ServicesDep, services_of
from spool.domain.jobs import Job
from spool.errors import Forbidden
from spool.schemas.jobs import AudioLink

_bearer = HTTPBearer(auto_error=False)


def create_link(services: ServicesDep, caller: CallerDep, sight: SightDep, job_id: str) -> AudioLink:
    """Get a link to the recording.

    A link to the recording that a player can open without a key; for a web address, the address itself.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
    view = sight.look_at(services.database, job)
    url, until = sign_link(services, caller, f"/v1/jobs/{job.id}/audio", closed=sight.opened)
    if job.source.kind == "https":
        if view.hides:
            raise Forbidden(f"{view.closed.sentence} It is at a web address, where nothing can be silenced.")
        url = _web_address(job)
    else:
        silence_recording(services, job, find_recording(services, caller, job), view)
    return AudioLink(url=url, expires_at=datetime.fromtimestamp(until, UTC))


async def authenticate_listener(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    by: Annotated[str | None, Query(max_length=100, description="Part of a link.")] = None,
    until: Annotated[int | None, Query(ge=0, le=2**40, description="Part of a link.")] = None,
    signature: Annotated[str | None, Query(max_length=100, description="Part of a link.")] = None,
    closed: Annotated[bool, CLOSED_PARAMETER] = False,
) -> Principal:
    """The caller: the bearer of a link, or else of a key."""
    if by is None or until is None or signature is None:
        return await authenticate(request, credentials)
    services = services_of(request)
    count_caller(request)
    caller = await run_in_threadpool(verify_link, services, request.url.path, by, until, signature, closed)
    request.state.caller = caller
    return caller


def get_audio(
    request: Request,
    services: ServicesDep,
    caller: Annotated[Principal, Depends(authenticate_listener)],
    job_id: str,
    wanted: Annotated[str | None, Header(alias="Range", max_length=200)] = None,
    closed: Annotated[bool, CLOSED_PARAMETER] = False,
) -> Response:
    """Fetch the recording.

    The recording, or the part that `Range` asks for. The bearer of a link may be redirected to the
    bucket. What is closed is silence.
    """
    sight = Sight(caller.name, may_open(caller, asked=closed), rule_name(request))
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
    recording = find_recording(services, caller, job)
    silenced = silence_recording(services, job, recording, sight.look_at(services.database, job))
    by_link = "signature" in request.query_params
    if by_link and silenced is None and (elsewhere := _public_url(services, job, recording)) is not None:
        return RedirectResponse(elsewhere, 307, {"Cache-Control": "no-store"})
    media_type = MEDIA_TYPE if isinstance(silenced, WavFile) else _media_type(job.name)
    if silenced is None:
        return send(recording, wanted, media_type)
    return send(silenced, wanted, media_type, {"Cache-Control": "no-store"})


def _web_address(job: Job) -> str:
    """The web address from which a player may read the recording. Raises `Problem` for an address with a
    query, which may contain credentials and is never shown."""
    refuse_unheard(job)
    if "?" in job.source.uri:
        raise Problem(409, "not_here", "The recording is at a signed web address; play it there.")
    return job.source.uri


def _public_url(services: Services, job: Job, recording: Recording) -> str | None:
    """The bucket's URL of an upload, if a player may read it there as it was stored. Callers with a key get
    the verified bytes from here, since HTTP clients follow no redirects by default."""
    source = job.source
    if source.kind != "upload" or recording.size != source.size or recording.stored_etag != source.etag:
        return None
    return services.objects.public_url(source.uri, _media_type(job.name), HOLDS_SECONDS)


def _media_type(name: str) -> str:
    guessed = mimetypes.guess_type(name)[0] or ""
    return guessed if guessed.startswith(("audio/", "video/")) else "application/octet-stream"
