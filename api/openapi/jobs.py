"""The OpenAPI texts of the routes: summaries, an example of each answer, the problems to expect.

Texts only; what the routes do is in their own modules.
"""

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel

from api.openapi.lattices import KALDI, LATTICE
from api.problems import MEDIA_TYPE
from spool.domain.transcript import Lattice, Transcript
from spool.formats import CONTENT_TYPES
from spool.schemas.costs import CostReportOut
from spool.schemas.examples import costs, jobs
from spool.schemas.fleet import (
    DefaultModel,
    Health,
    ModelDetail,
    ModelList,
    ProblemOut,
    Readiness,
    WorkerList,
)
from spool.schemas.jobs import JobDetail, JobPage, JobRequest, UploadRequest, inline_schema

Words = dict[str, Any]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the previous page.")]
Answers = dict[int | str, Words]

DESCRIPTION = """
Submit recordings, follow them, fetch their transcripts, and see what they cost.

A job is submitted with an address (`s3://`, `https://`, `file://`) or with the recording itself. Its states
are `queued → running → done | failed | cancelled`. Every error is an `application/problem+json` document
(RFC 9457) with a stable `code`.
"""

_DETAILS = {
    "malformed": (400, "The request is not valid JSON."),
    "unauthorized": (401, "Send an API key as `Authorization: Bearer …`."),
    "forbidden": (403, "This request requires a key with the scope submit."),
    "source_forbidden": (
        403,
        "/etc/passwd is not under a folder that this server may read from. Upload the recording, or have the "
        "operator add its folder to SPOOL_SOURCE_ROOTS.",
    ),
    "not_found": (404, f"There is no job {jobs.JOB_ID}."),
    "not_done": (409, f"Job {jobs.JOB_ID} is running."),
    "not_ended": (409, f"Job {jobs.JOB_ID} is running; cancel it first."),
    "deleted": (410, f"The transcript of job {jobs.JOB_ID} was deleted on 2026-11-20 14:03 UTC."),
    "not_here": (409, "The recording is at a web address; play it there."),
    "not_offered": (409, "This server accepts recordings only through POST /v1/jobs."),
    "parts_missing": (409, "2 of 3 parts are missing; the first is part 2."),
    "conflict": (409, f"Job {jobs.JOB_ID} is done and cannot be cancelled."),
    "edited": (409, "Bo changed these words in revision 3; review that and edit again."),
    "too_slow": (408, "The request body arrives too slowly."),
    "too_large": (413, "The file is larger than the 4294967296 bytes allowed here."),
    "unsupported_media_type": (415, "Send application/json or multipart/form-data."),
    "no_such_range": (416, "The recording has no such bytes."),
    "invalid_request": (422, "query.limit: Input should be less than or equal to 200"),
    "bad_lines": (422, "3 of 5000 lines are invalid. The batch is strict, so no job was created."),
    "source_missing": (422, "There is no folder /archive/1974."),
    "unknown_model": (422, "There is no model 'parakeet-9'. Available models: demo."),
    "rate_limited": (429, "Too many requests; try again in 1 s."),
    "storage": (503, "The database does not answer."),
    "overloaded": (503, "The server has too many requests under way; try again in a moment."),
    "too_many_streams": (503, "Too many event streams are open; try again later."),
    "no_worker": (503, "No worker can take the recording: it waits for a worker with model parakeet."),
    "too_long": (504, "The transcript was not ready within 900 s; submit the recording as a job."),
    "disk_full": (507, "No space is left where uploads are received."),
}
# Examples with the code of another one and a status or text of their own.
_CODES = {"malformed": "invalid_request", "not_ended": "conflict"}


def add_problem_schema(page: Words) -> None:
    """Add the schema of problems; declared as a route's `model` it would also appear as plain JSON."""
    schema = ProblemOut.model_json_schema(ref_template="#/components/schemas/{model}")
    page["components"]["schemas"] |= schema.pop("$defs") | {"ProblemOut": schema}


def make_keys_optional(page: Words) -> None:
    """Make keys optional in the description, for a server without keys."""
    operations = (operation for path in page["paths"].values() for operation in path.values())
    for operation in operations:
        if "security" in operation:
            operation["security"].append({})


def problem_codes() -> tuple[str, ...]:
    """The codes of the problems that routes answer with."""
    return tuple(code for code in _DETAILS if code not in _CODES)


def problem_example(code: str) -> Words:
    """The example of one problem."""
    status, detail = _DETAILS[code]
    code = _CODES.get(code, code)
    return {
        "type": f"urn:spool:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "instance": "/v1/jobs",
    }


def problems(*codes: str) -> Answers:
    """The responses for these codes by status, each with its example."""
    by_status: dict[int, Words] = {}
    for code in codes:
        example = problem_example(code)
        by_status.setdefault(example["status"], {})[code] = {"value": example}
    return {
        status: {
            "description": ", ".join(f"`{example['value']['code']}`" for example in named.values()),
            "content": {
                MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}, "examples": named}
            },
        }
        for status, named in by_status.items()
    }


def answer(status: int, description: str, model: Any, example: Words) -> Answers:  # noqa: ANN401 (a class)
    """One response with its example."""
    content = {"application/json": {"example": example}}
    return {status: {"model": model, "description": description, "content": content}}


def no_content(description: str) -> Answers:
    """204, without a body."""
    return {204: {"description": description}}


def describe(summary: str, *answers: Answers, **more: Any) -> Words:  # noqa: ANN401 - as FastAPI takes them
    """The texts of a route; `more` are further arguments for FastAPI."""
    responses = {status: words for each in answers for status, words in each.items()}
    return {"summary": summary, "responses": responses, **more}


# Every route under /v1 may answer with these.
EVERYWHERE: Answers = problems(
    "malformed", "unauthorized", "forbidden", "invalid_request", "rate_limited", "overloaded", "storage"
)

_BODY: Words = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": JobRequest.model_json_schema(),
                "example": jobs.JOB_REQUEST,
            },
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "The recording."},
                        "request": UploadRequest.model_json_schema(),
                        "transcript": {
                            "type": "string",
                            "format": "binary",
                            "description": "An existing transcript of up to 10 MiB to align with it, in "
                            "place of the option `align`: a text in UTF-8, SRT, WebVTT or Word (.docx).",
                        },
                    },
                },
                "encoding": {"request": {"contentType": "application/json"}},
                "example": {"request": jobs.UPLOAD_REQUEST, "file": "(bytes)"},
            },
        },
    }
}


def json_body(schema: type[BaseModel], example: object) -> dict[str, Any]:
    """The `openapi_extra` of a route that reads its body itself, as JSON of this schema."""
    content = {"application/json": {"schema": inline_schema(schema), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def submission(thing: str, body: Words, model: type[Any], accepted: Words, shown: Words, *also: str) -> Words:
    """The texts of a route that creates a job or a batch; `also`: problems besides those common to both."""
    words: Words = {
        "summary": f"Submit a {thing}",
        "status_code": 202,
        "response_model": model,
        "openapi_extra": body,
        "responses": {
            **answer(202, f"Accepted; `Location` names the {thing}.", model, accepted),
            **answer(
                200,
                f"The idempotency key was used for the same request before: the {thing} of that request.",
                model,
                shown,
            ),
            **problems(
                "malformed",
                "forbidden",
                "source_forbidden",
                "conflict",
                "too_slow",
                "too_large",
                "unsupported_media_type",
                "invalid_request",
                "unknown_model",
                "disk_full",
                *also,
            ),
        },
    }
    words["responses"][202]["headers"] = {
        "Location": {"description": f"The {thing}'s path.", "schema": {"type": "string"}}
    }
    return words


CREATE = submission("job", _BODY, JobDetail, jobs.JOB_QUEUED, jobs.JOB_DETAIL)

LIST = describe("List jobs", answer(200, "A page of jobs, newest first.", JobPage, jobs.JOB_PAGE))

ONE = describe(
    "Show a job",
    answer(200, "The job with its cost so far.", JobDetail, jobs.JOB_DETAIL),
    problems("not_found"),
)

CANCEL = describe(
    "Cancel a job",
    answer(200, "The job, cancelled or stopping.", JobDetail, jobs.JOB_CANCELLED),
    problems("not_found", "conflict"),
)

RETRY = describe(
    "Retry a failed or cancelled job",
    answer(202, "The job, queued again.", JobDetail, jobs.JOB_QUEUED),
    answer(
        200,
        "The idempotency key was used for the same retry before: the job as it is now.",
        JobDetail,
        jobs.JOB_DETAIL,
    ),
    problems("not_found", "conflict", "deleted"),
    status_code=202,
)

TRANSCRIPT = describe(
    "Fetch a transcript",
    {
        200: {
            "description": "The transcript in the format asked for, or the lattice of each chunk.",
            "model": Transcript | list[Lattice],
            "content": {
                "application/json": {
                    "examples": {
                        "json": {"value": jobs.TRANSCRIPT},
                        "lattice": {"value": [LATTICE]},
                    }
                },
                "text/plain": {
                    "schema": {"type": "string"},
                    "examples": {"txt": {"value": "keep the light\n"}, "kaldi": {"value": KALDI}},
                },
                "application/x-subrip": {"schema": {"type": "string"}, "example": jobs.SRT},
                "text/vtt": {"schema": {"type": "string"}, "example": jobs.VTT},
                "text/tab-separated-values": {
                    "schema": {"type": "string"},
                    "example": "start\tend\ttext\n160\t1200\tkeep the light\n",
                },
                "application/ttml+xml": {
                    "schema": {"type": "string"},
                    "example": '<tt xmlns="http://www.w3.org/ns/ttml" xml:lang="en"><body/></tt>',
                },
                CONTENT_TYPES["docx"]: {"schema": {"type": "string", "format": "binary"}, "example": "PK…"},
                "application/xml": {"schema": {"type": "string"}, "example": "<ANNOTATION_DOCUMENT/>"},
            },
        }
    },
    problems("not_found", "not_done", "deleted"),
    response_model=None,
)

COSTS = describe(
    "Show costs",
    {
        200: {
            "model": CostReportOut,
            "description": "Costs by group, in total, and of idle workers; as JSON, CSV or SVG.",
            "content": {
                "application/json": {"example": costs.COSTS},
                "text/csv": {"schema": {"type": "string"}, "example": costs.CSV},
                "image/svg+xml": {"schema": {"type": "string"}, "example": costs.SVG},
            },
        }
    },
)

WORKERS = describe(
    "List workers", answer(200, "Workers, most recently seen first.", WorkerList, jobs.WORKERS)
)

MODELS = describe("List models", answer(200, "The models that jobs may name.", ModelList, jobs.MODELS))

MODEL = describe("Show a model", answer(200, "The model.", ModelDetail, jobs.MODEL), problems("not_found"))

DEFAULT_MODEL = describe(
    "Set the default model",
    answer(200, "The model of jobs that name none.", DefaultModel, jobs.DEFAULT_MODEL),
    problems("malformed", "too_slow", "too_large", "unsupported_media_type", "conflict", "unknown_model"),
    openapi_extra=json_body(DefaultModel, jobs.DEFAULT_MODEL),
)

HEALTHZ = describe(
    "Check liveness",
    answer(200, "The process is alive.", Health, jobs.HEALTH),
    answer(503, "The process is about to end: send requests elsewhere.", Health, jobs.STOPPING),
)

READYZ = describe(
    "Check readiness",
    answer(200, "Database, broker and object store answer.", Readiness, jobs.READY),
    answer(503, "At least one of them does not answer.", Readiness, jobs.NOT_READY),
)
