"""The routes of recordings: a link for a player, and the recording's bytes, whole or in part.

Recordings in the object store, in a bucket or under an allowed folder are passed on; web addresses are not
fetched on behalf of callers. Answers have a media type of audio, or one that no browser executes.

Range requests follow RFC 9110, section 14.
"""

import mimetypes
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, BinaryIO

from fastapi import Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.auth.authentication import CallerDep, authenticate, count_caller, rule_name
from api.auth.principal import Principal, get_visible_job
from api.auth.sight import CLOSED_PARAMETER, Sight, SightDep, View, may_open
from api.auth.signed_urls import HOLDS_SECONDS, sign_link, verify_link
from api.problems import Problem
from api.services import Services, ServicesDep, services_of
from api.submission.connections import s3_access_of
from api.submission.sources import check_source, file_path
from spool.domain.jobs import Job, JobState, Source
from spool.domain.retention import Content
from spool.errors import Forbidden, InvalidRequest, NotFound, SourceMissing
from spool.objects import ObjectStore
from spool.objects.integrity import read_range
from spool.recordings.silence import Muted, mute_wav
from spool.schemas.jobs import AudioLink
from spool.store.archive.closed import any_content_closed
from spool.store.deletions import refuse_deleted
from spool.store.jobs import hashes_of_source

_bearer = HTTPBearer(auto_error=False)


@dataclass(frozen=True, slots=True)
class _Recording:
    """A recording that can be read here."""

    size: int
    store: ObjectStore | None
    key: str
    etag: str | None
    path: Path | None
    hashes: bytes | None = None
    """Of an upload's blocks, which are verified before they are sent."""
    stored_etag: str | None = None
    """What the store now reports of it."""

    def part(self, start: int, end: int) -> Iterator[bytes]:
        """Bytes `[start, end)`. If the first block of an upload is damaged, raises before any byte is
        sent."""
        if self.hashes is None:
            return read_blocks(lambda: self.open(start), end - start)
        parts = self._verify(start, end)
        return chain((next(parts, b""),), parts)

    def _verify(self, start: int, end: int) -> Iterator[bytes]:
        assert self.store is not None
        assert self.hashes is not None
        if start < end:
            yield from read_range(self.store, self.key, self.etag, self.hashes, start, end)

    def open(self, start: int) -> BinaryIO:
        """Its bytes from `start`."""
        if self.path is not None:
            stream = self.path.open("rb")
            stream.seek(start)
            return stream
        assert self.store is not None
        return self.store.open(self.key, self.etag, start=start)


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
            raise _not_silenced(view)
        url = _web_address(job)
    else:
        _muted(services, job, _recording(services, caller, job), view)
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
    recording = _recording(services, caller, job)
    muted = _muted(services, job, recording, sight.look_at(services.database, job))
    by_link = "signature" in request.query_params
    if by_link and muted is None and (elsewhere := _public_url(services, job, recording)) is not None:
        return RedirectResponse(elsewhere, 307, {"Cache-Control": "no-store"})
    try:
        part = parse_range(wanted, recording.size)
    except ValueError as error:
        raise Problem(
            416, "no_such_range", str(error), {"Content-Range": f"bytes */{recording.size}"}
        ) from None
    start, end = part or (0, recording.size)
    headers = {"Accept-Ranges": "bytes", "Content-Length": str(end - start), "Content-Disposition": "inline"}
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{recording.size}"
    body = recording.part(start, end) if recording.size else iter(())
    if muted is not None:
        body = muted.apply(body, start)
        headers["Cache-Control"] = "no-store"
    return StreamingResponse(body, 206 if part else 200, headers, _media_type(job.name))


def _muted(services: Services, job: Job, recording: _Recording, view: View) -> Muted | None:
    """What of the recording is silenced; None for nothing. Raises `Problem` if it cannot be."""
    if not view.hides:
        if view.opened or job.content_sha256 is not None:
            return None
        with services.database.read() as tx:
            unsure = any_content_closed(tx, job.project)
        if unsure:
            # Its bytes may be those of a closed recording.
            reason = "Something of this project is closed, and this recording has not been read yet."
            raise Problem(409, "not_here", reason)
        return None
    if view.closed.is_whole:
        raise Forbidden(view.closed.sentence)
    with recording.open(0) as file:
        muted = mute_wav(file, recording.size, view.closed.spans)
    if muted is None:
        raise _not_silenced(view)
    return muted


def _not_silenced(view: View) -> Forbidden:
    return Forbidden(
        f"{view.closed.sentence} Only uncompressed WAV files can be played without what is closed."
    )


def _web_address(job: Job) -> str:
    """The web address from which a player may read the recording. Raises `Problem` for an address with a
    query, which may contain credentials and is never shown."""
    _refuse_unheard(job)
    if "?" in job.source.uri:
        raise Problem(409, "not_here", "The recording is at a signed web address; play it there.")
    return job.source.uri


def _refuse_unheard(job: Job) -> None:
    # Otherwise anyone who submits an address could read what is there, audio or not.
    if not (job.done_seconds or job.state is JobState.DONE):
        raise Problem(409, "not_here", "The recording can be played once a worker has decoded some of it.")


def _public_url(services: Services, job: Job, recording: _Recording) -> str | None:
    """The bucket's URL of an upload, if a player may read it there as it was stored. Callers with a key get
    the verified bytes from here, since HTTP clients follow no redirects by default."""
    source = job.source
    if source.kind != "upload" or recording.size != source.size or recording.stored_etag != source.etag:
        return None
    return services.objects.public_url(source.uri, _media_type(job.name), HOLDS_SECONDS)


def _recording(services: Services, caller: Principal, job: Job) -> _Recording:
    source = job.source
    if source.kind in ("s3", "file"):
        _refuse_unheard(job)
    match source.kind:
        case "upload":
            refuse_deleted(job, Content.SOURCE)
            with services.database.read() as tx:
                hashes = hashes_of_source(tx, job.id)
            # A direct upload is pinned by its ETag until a worker has hashed its blocks.
            stored = _find_stored(services.objects, source.uri, source.etag if hashes is None else None)
            return replace(stored, hashes=hashes)
        case "live":
            refuse_deleted(job, Content.SOURCE)
            raise Problem(409, "not_here", "The session has not ended; its recording can be played then.")
        case "s3":
            bucket, _, key = source.uri.removeprefix("s3://").partition("/")
            try:
                access = s3_access_of(services, job.project, source.connection)
                access.check(source.uri)
            except InvalidRequest as error:
                raise Problem(409, "not_here", error.message) from None
            return _find_stored(access.store(bucket), key, source.etag)
        case "file":
            return _find_local(source, services, caller)
    raise Problem(409, "not_here", "The recording is at a web address; play it there.")


def _find_stored(store: ObjectStore, key: str, etag: str | None) -> _Recording:
    facts = store.head(key)
    if facts is None:
        raise NotFound("The recording no longer exists.")
    return _Recording(facts.size, store, key, etag, None, stored_etag=facts.etag)


def _find_local(source: Source, services: Services, caller: Principal) -> _Recording:
    # Checked again: roots may have been removed since, and links created.
    try:
        path = file_path(check_source(source.uri, services.settings, caller))
        return _Recording(path.stat().st_size, None, "", None, path)
    except (OSError, SourceMissing):
        raise NotFound("The recording no longer exists.") from None


def _media_type(name: str) -> str:
    guessed = mimetypes.guess_type(name)[0] or ""
    return guessed if guessed.startswith(("audio/", "video/")) else "application/octet-stream"


BLOCK = 64 * 1024  # what a slow client may occupy, besides the socket's buffers
_ONE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The first byte and the one after the last; None for the whole, also if the header is invalid or asks
    for several ranges. Raises ValueError for bytes that do not exist."""
    match = _ONE.fullmatch(header.replace(" ", "")) if header else None
    if match is None or match[1] == match[2] == "":
        return None
    if not match[1]:
        start, end = max(size - int(match[2]), 0), size
    else:
        start, end = int(match[1]), min(int(match[2]) + 1 if match[2] else size, size)
        if match[2] and int(match[2]) < start:
            return None
    if start >= end:
        raise ValueError("The recording has no such bytes.")
    return start, end


def read_blocks(opened: Callable[[], BinaryIO], length: int) -> Iterator[bytes]:
    """The first `length` bytes of what `opened` returns; opened on the first read, not for a client that
    left."""
    with opened() as stream:
        while length and (block := stream.read(min(BLOCK, length))):
            length -= len(block)
            yield block
