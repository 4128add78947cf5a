"""The routes of direct uploads, past the API: begin, show, list parts with URLs, complete, delete."""

from typing import Annotated

from fastapi import Query, Response

from api.auth.authentication import CallerDep
from api.services import ServicesDep
from api.submission import direct
from api.submission.bodies import json_body
from spool.schemas.uploads import NewUploadRequest, PartPage, UploadOut


def create(
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    body: Annotated[NewUploadRequest, json_body(NewUploadRequest)],
) -> UploadOut:
    """Begin a direct upload.

    To send a recording straight to the object store. With a `sha256`, repeating the request continues the
    same upload. Available if the server has a bucket that clients can reach.
    """
    upload, created = direct.open_upload(services, caller, body)
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/v1/uploads/{upload.id}"
    return UploadOut.of(upload)


def get_upload(services: ServicesDep, caller: CallerDep, upload_id: str) -> UploadOut:
    """Show a direct upload."""
    return UploadOut.of(direct.find_upload(services, caller, upload_id))


def list_parts(
    services: ServicesDep,
    caller: CallerDep,
    upload_id: str,
    first: Annotated[int, Query(alias="from", ge=1, le=10_000, description="The first part's number.")] = 1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> PartPage:
    """List the parts of an upload.

    By number. Each missing one has a URL, valid for an hour, to which anyone may PUT its bytes.
    """
    return direct.list_parts(services, caller, upload_id, first, limit)


def complete(services: ServicesDep, caller: CallerDep, upload_id: str) -> UploadOut:
    """Complete an upload.

    Joins the parts that the object store has received; a job can then use it. Safe to repeat.
    """
    return UploadOut.of(direct.complete_upload(services, caller, upload_id))


def drop(services: ServicesDep, caller: CallerDep, upload_id: str) -> None:
    """Delete an upload.

    One that no job uses, with its parts.
    """
    direct.drop_upload(services, caller, upload_id)
