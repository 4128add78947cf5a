"""The routes of uploads that go past the API: begin, show, list parts with addresses, complete, give up."""

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
    "Begin an upload past the API",
    answer(201, "The upload, open.", UploadOut, examples.UPLOAD),
    answer(200, "The same file's upload, which no job has named yet.", UploadOut, examples.UPLOAD),
    problems("malformed", "too_slow", "too_large", "not_offered", "conflict", "invalid_request"),
    status_code=201,
    openapi_extra=json_body(NewUploadRequest, examples.REQUEST),
)
ONE = describe(
    "Show an upload", answer(200, "The upload.", UploadOut, examples.UPLOAD), problems("not_found")
)
PARTS = describe(
    "List the parts of an upload",
    answer(200, "Parts, with addresses for those that are missing.", PartPage, examples.PARTS),
    problems("not_found", "not_offered", "conflict"),
)
COMPLETE = describe(
    "Complete an upload",
    answer(200, "The upload, which a job may now name.", UploadOut, examples.COMPLETE),
    problems("not_found", "not_offered", "parts_missing", "conflict"),
)
DROP = describe(
    "Give an upload up",
    no_content("It is gone with its parts."),
    problems("not_found", "conflict"),
    status_code=204,
)


async def create(request: Request, response: Response, services: ServicesDep, caller: CallerDep) -> UploadOut:
    """Begin to send a recording straight to the object store. With a `sha256`, a repeat continues the same
    upload. Offered where the server has a bucket that clients reach."""
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
    """Parts by number, as the store has them; each that is missing has an address, good for an hour, at which
    anybody may PUT its bytes."""
    return direct.list_parts(services, caller, upload_id, first, limit)


def complete(services: ServicesDep, caller: CallerDep, upload_id: str) -> UploadOut:
    """Put the parts together. The server asks the store which there are. Harmless to repeat."""
    return direct.complete_upload(services, caller, upload_id)


def drop(services: ServicesDep, caller: CallerDep, upload_id: str) -> Response:
    """Drop an upload that no job has named, with its parts."""
    direct.drop_upload(services, caller, upload_id)
    return Response(status_code=204)
