"""Every error as `application/problem+json` (RFC 9457): the status of each code, and the text.

Maps `spool.errors` to HTTP statuses. An unexpected error is logged in full under an id; the caller gets only
the id.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection

from api.middleware.log_context import get_subject
from spool import errors

log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 20
"""The most errors that one answer lists, which keeps it below 64 KB whatever was sent."""
# OpenAI's clients read the message from the member `error`.
OPENAI_PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/models")

# The most specific class wins; a class that is not listed has the status of its nearest listed parent.
STATUS: Mapping[type[errors.SpoolError], int] = {
    errors.SpoolError: 500,
    errors.InvalidRequest: 422,
    errors.SettingsError: 500,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Deleted: 410,
    errors.SourceError: 422,
    errors.SourceForbidden: 403,
    errors.AudioError: 422,
    errors.ModelError: 500,
    errors.UnknownModel: 422,
    errors.StorageError: 503,
    errors.DiskFull: 507,
}

_HTTP_CODES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
}


class _Example(NamedTuple):
    """A problem as the OpenAPI description shows it; `code` if that is not its name here."""

    status: int
    detail: str
    code: str | None = None


_JOB = "job_01JD5T9Q4X8K2M6N0P3R7S1V5W"
PROBLEMS: Mapping[str, _Example] = {
    "malformed": _Example(400, "The request is not valid JSON.", "invalid_request"),
    "unauthorized": _Example(401, "Send an API key as `Authorization: Bearer …`."),
    "forbidden": _Example(403, "This request requires a key with the scope submit."),
    "source_forbidden": _Example(
        403,
        "/etc/passwd is not under a folder that this server may read from. Upload the recording, or have the "
        "operator add its folder to SPOOL_SOURCE_ROOTS.",
    ),
    "not_found": _Example(404, f"There is no job {_JOB}."),
    "too_slow": _Example(408, "The request body arrives too slowly."),
    "not_done": _Example(409, f"Job {_JOB} is running."),
    "not_ended": _Example(409, f"Job {_JOB} is running; cancel it first.", "conflict"),
    "not_here": _Example(409, "The recording is at a web address; play it there."),
    "cannot_cut": _Example(409, "It can be cut once a worker has read it to its end."),
    "not_offered": _Example(409, "This server accepts no recordings in parts; send each one whole."),
    "parts_missing": _Example(409, "2 of 3 parts are missing; the first is part 2."),
    "conflict": _Example(409, f"Job {_JOB} is done and cannot be cancelled."),
    "edited": _Example(409, "Bo changed these words in revision 3; review that and edit again."),
    "deleted": _Example(410, f"The transcript of job {_JOB} was deleted on 2026-11-20 14:03 UTC."),
    "too_large": _Example(413, "The file is larger than the 4294967296 bytes allowed here."),
    "unsupported_media_type": _Example(415, "Send application/json or multipart/form-data."),
    "no_such_range": _Example(416, "The recording has no such bytes."),
    "invalid_request": _Example(422, "query.limit: Input should be less than or equal to 200"),
    "bad_lines": _Example(422, "3 of 5000 lines are invalid. The batch is strict, so no job was created."),
    "source_missing": _Example(422, "There is no folder /archive/1974."),
    "unknown_model": _Example(422, "There is no model 'parakeet-9'. Available models: demo."),
    "rate_limited": _Example(429, "Too many requests; try again in 1 s."),
    "storage": _Example(503, "The database does not answer."),
    "overloaded": _Example(503, "The server has too many requests under way; try again in a moment."),
    "too_many_streams": _Example(503, "Too many event streams are open; try again later."),
    "no_worker": _Example(
        503, "No worker can take the recording: it waits for a worker with model parakeet."
    ),
    "too_long": _Example(504, "The transcript was not ready within 900 s; submit the recording as a job."),
    "disk_full": _Example(507, "No space is left where uploads are received."),
}
"""The problems that routes may answer with, each with an example of its text."""


class Problem(Exception):
    """An error that exists only in HTTP: status, stable code, message, headers, and extension members."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        **members: object,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.members = members


def problem_response(
    request: HTTPConnection,
    status: int,
    code: str,
    detail: str,
    *,
    members: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """One problem document. `members` are extension members; they never replace the standard ones."""
    body = problem_document(status, code, _shorten(detail, 2000), _shorten(request.url.path, 1000))
    if request.url.path.startswith(OPENAI_PATHS):
        body["error"] = {"message": body["detail"], "type": code, "code": code, "param": None}
    body |= {key: value for key, value in (members or {}).items() if key not in body}
    # ASCII, since the request may have contained half a surrogate pair.
    text = json.dumps(body, separators=(",", ":"))
    return Response(text, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def problem_document(status: int, code: str, detail: str, path: str) -> dict[str, Any]:
    """The standard members of a problem, at this path."""
    return {
        "type": f"urn:spool:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "instance": path,
    }


def status_of(error: errors.SpoolError) -> int:
    """The HTTP status of an error."""
    for kind in type(error).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 500


def install(app: FastAPI) -> None:
    """Make `app` answer every error as a problem."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(errors.SpoolError, _on_spool_error)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_unexpected)


def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_response(
        request, error.status, error.code, error.detail, members=error.members, headers=error.headers
    )


def _on_spool_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.SpoolError)
    status = status_of(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return _on_unexpected(request, error)
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        # SNS sends the password in its endpoint's URL only in reply to a challenge.
        basic = request.url.path == "/v1/sources/notifications"
        headers["WWW-Authenticate"] = 'Basic realm="spool"' if basic else "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "5"
        log.warning("a store does not answer", **get_subject(), path=request.url.path, error=error.message)
    return problem_response(request, status, error.code, error.message, headers=headers)


def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _on_problem(request, validation_problem(error.errors()))


def validation_problem(faults: Sequence[Any], *prefix: str) -> Problem:
    """Pydantic's first errors as one problem, without the values that were sent: they may be secrets."""
    listed = []
    for fault in faults[:MAX_ERRORS]:
        where = ".".join(str(step) for step in (*prefix, *fault["loc"])) or "body"
        message = errors.fault_message(fault)
        listed.append({"where": _shorten(where, 200), "message": _shorten(message, 500)})
    detail = "; ".join(f"{fault['where']}: {fault['message']}" for fault in listed[:3])
    if len(faults) > MAX_ERRORS:
        detail += f"; and {len(faults) - 3} more errors"
    return Problem(422, "invalid_request", detail, errors=listed)


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "http")
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"There is nothing at {request.url.path}."
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_methods_at(request)) or (error.headers or {}).get("allow", "")
        detail = f"{request.method} is not allowed at {request.url.path}; allowed: {allowed}."
        return problem_response(request, error.status_code, code, detail, headers={"Allow": allowed})
    else:
        detail = f"{error.detail}."
    return problem_response(request, error.status_code, code, detail, headers=error.headers)


def _methods_at(request: Request) -> list[str]:
    """Every documented method of the path: each is a separate route, and Starlette names only the first
    one's."""
    here = request.url.path
    routes = [each for each in request.app.routes if isinstance(each, APIRoute) and each.include_in_schema]
    exact = [each for each in routes if each.path == here]
    matching = exact or [each for each in routes if each.path_regex.match(here)]
    return sorted({method for each in matching for method in each.methods or ()})


def _on_disconnect(request: Request, _error: Exception) -> Response:
    # The client is gone; an answer only completes the request.
    return problem_response(request, 400, "disconnected", "The request ended before its body was complete.")


def _on_unexpected(request: Request, error: Exception) -> Response:
    reference = f"err_{uuid.uuid4().hex[:12]}"
    log.error("unexpected error", **get_subject(), reference=reference, path=request.url.path, exc_info=error)
    detail = f"An unexpected error occurred. The server's log has the details under {reference}."
    return problem_response(request, 500, "internal", detail, members={"reference": reference})
