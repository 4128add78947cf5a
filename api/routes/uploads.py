"""The routes of direct uploads, past the API: begin, show, list parts with URLs, complete, delete."""

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.openapi.jobs import answer, describe, json_body, no_content, problems
from api.services import ServicesDep
from api.submission import direct
from api.submission.bodies import SMALL, read_json
from spool.schemas.examples import uploads as examples
from spool.schemas.uploads import NewUploadRequest, PartPage, UploadOut

CREATE = describe(
    "Begin a direct upload",
    answer(201, "The upload, open.", UploadOut, examples.UPLOAD),
    answer(200, "The unused upload of the same file.", UploadOut, examples.UPLOAD),
    problems("malformed", "too_slow", "too_large", "not_offered", "conflict", "invalid_request"),
    status_code=201,
    openapi_extra=json_body(NewUploadRequest, examples.REQUEST),
)
ONE = describe(
    "Show an upload", answer(200, "The upload.", UploadOut, examples.UPLOAD), problems("not_found")
)
PARTS = describe(
    "List the parts of an upload",
    answer(200, "Parts, with URLs for those that are missing.", PartPage, examples.PARTS),
    problems("not_found", "not_offered", "conflict"),
)
COMPLETE = describe(
    "Complete an upload",
    answer(200, "The upload, which a job can now use.", UploadOut, examples.COMPLETE),
    problems("not_found", "not_offered", "parts_missing", "conflict"),
)
DROP = describe(
    "Delete an upload",
    no_content("The upload and its parts were deleted."),
    problems("not_found", "conflict"),
    status_code=204,
)


async def create(request: Request, response: Response, services: ServicesDep, caller: CallerDep) -> UploadOut:
    """Begin to send a recording straight to the object store. With a `sha256`, repeating the request
    continues the same upload. Available if the server has a bucket that clients can reach."""
    body = await read_json(request, NewUploadRequest, SMALL)
    upload, created = await run_in_threadpool(direct.open_upload, services, caller, body)
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/v1/uploads/{upload.id}"
    return upload


def get_upload(services: ServicesDep, caller: CallerDep, upload_id: str) -> UploadOut:
    """An upload."""
    return direct.get_upload(services, caller, upload_id)


def list_parts(
    services: ServicesDep,
    caller: CallerDep,
    upload_id: str,
    first: Annotated[int, Query(alias="from", ge=1, le=10_000, description="The first part's number.")] = 1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> PartPage:
    """Parts by number. Each missing one has a URL, valid for an hour, to which anyone may PUT its bytes."""
    return direct.list_parts(services, caller, upload_id, first, limit)


def complete(services: ServicesDep, caller: CallerDep, upload_id: str) -> UploadOut:
    """Join the parts that the object store has received. Safe to repeat."""
    return direct.complete_upload(services, caller, upload_id)


def drop(services: ServicesDep, caller: CallerDep, upload_id: str) -> Response:
    """Delete an upload that no job uses, with its parts."""
    direct.drop_upload(services, caller, upload_id)
    return Response(status_code=204)
