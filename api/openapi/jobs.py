"""What the OpenAPI page says of each route: summaries, an example for each answer, problems to expect.

Words only; what the routes do is in their own modules.
"""

from typing import Any

from api.openapi.lattices import KALDI, LATTICE
from api.problems import MEDIA_TYPE
from spool.domain.transcript import Lattice, Transcript
from spool.schemas.costs import CostReportOut
from spool.schemas.examples import costs, jobs
from spool.schemas.fleet import Health, ModelList, ProblemOut, Readiness, WorkerList
from spool.schemas.jobs import JobDetail, JobPage, JobRequest, UploadRequest

Words = dict[str, Any]
Answers = dict[int | str, Words]

DESCRIPTION = """
Hand in recordings, follow them, fetch their words, and see what they cost.

A job is submitted with an address (`s3://`, `https://`, `file://`) or with the recording itself. It goes
`queued → running → done | failed | cancelled`. Every error is an `application/problem+json` document whose
`code` is stable.
"""

_DETAILS = {
    "malformed": (400, "The request is not valid JSON."),
    "unauthorized": (401, "Send an API key as `Authorization: Bearer …`."),
    "forbidden": (403, "This needs a key with the scope submit."),
    "source_forbidden": (403, "/etc/passwd is not under a folder that this server may read from."),
    "not_found": (404, f"There is no job {jobs.JOB_ID}."),
    "not_done": (409, f"Job {jobs.JOB_ID} is running."),
    "not_ended": (409, f"Job {jobs.JOB_ID} is running; cancel it first."),
    "deleted": (410, f"The transcript of job {jobs.JOB_ID} was deleted on 2026-11-20 14:03 UTC."),
    "not_here": (409, "The recording lies at a web address; listen to it there."),
    "conflict": (409, f"Job {jobs.JOB_ID} is done and cannot be cancelled."),
    "too_slow": (408, "The request's body arrives too slowly."),
    "too_large": (413, "The file is larger than the 4294967296 bytes allowed here."),
    "unsupported_media_type": (415, "Send application/json or multipart/form-data."),
    "no_such_range": (416, "The recording has no such bytes."),
    "invalid_request": (422, "query.limit: Input should be less than or equal to 200"),
    "bad_lines": (422, "3 of 5000 lines are bad, and the batch is strict: none runs."),
    "source_missing": (422, "There is no folder /archive/1974."),
    "unknown_model": (422, "There is no model 'parakeet-9'. Available models: demo."),
    "rate_limited": (429, "Too many requests; try again in 1 s."),
    "storage": (503, "The database does not answer."),
    "overloaded": (503, "The server has too many requests under way; try again in a moment."),
    "too_many_streams": (503, "Too many streams of events are open here; ask again."),
    "too_long": (504, "The recording was not done within 900 s; submit it as a job."),
    "disk_full": (507, "No space is left where uploads are received."),
}
# What is named apart here for its status, and has the code of another.
_CODES = {"malformed": "invalid_request", "not_ended": "conflict"}


def add_problem_schema(page: Words) -> None:
    """Put the schema of problems on the page: a route's `model` would offer them as plain JSON too."""
    schema = ProblemOut.model_json_schema(ref_template="#/components/schemas/{model}")
    page["components"]["schemas"] |= schema.pop("$defs") | {"ProblemOut": schema}


def let_anybody_in(page: Words) -> None:
    """Say on the page of a server without keys that it asks for none; one may be sent."""
    operations = (operation for path in page["paths"].values() for operation in path.values())
    for operation in operations:
        if "security" in operation:
            operation["security"].append({})


def problem_codes() -> tuple[str, ...]:
    """The codes of problems that routes may answer with."""
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
    """Answers by status for these codes, each with its example."""
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
    """One answer with its example."""
    content = {"application/json": {"example": example}}
    return {status: {"model": model, "description": description, "content": content}}


# Every route under /v1 may answer so.
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
                    },
                },
                "encoding": {"request": {"contentType": "application/json"}},
                "example": {"request": jobs.UPLOAD_REQUEST, "file": "(bytes)"},
            },
        },
    }
}

CREATE: Words = {
    "summary": "Submit a job",
    "status_code": 202,
    "response_model": JobDetail,
    "openapi_extra": _BODY,
    "responses": {
        **answer(202, "Accepted; `Location` names the job.", JobDetail, jobs.JOB_QUEUED),
        **answer(200, "This key was used for the same request: its job.", JobDetail, jobs.JOB_DETAIL),
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
        ),
    },
}
CREATE["responses"][202]["headers"] = {
    "Location": {"description": "The job's path.", "schema": {"type": "string"}}
}

LIST: Words = {
    "summary": "List jobs",
    "responses": answer(200, "A page of jobs, newest first.", JobPage, jobs.JOB_PAGE),
}

ONE: Words = {
    "summary": "Look at a job",
    "responses": {
        **answer(200, "The job with its cost so far.", JobDetail, jobs.JOB_DETAIL),
        **problems("not_found"),
    },
}

CANCEL: Words = {
    "summary": "Cancel a job",
    "responses": {
        **answer(200, "The job, cancelled or about to be.", JobDetail, jobs.JOB_CANCELLED),
        **problems("not_found", "conflict"),
    },
}

RETRY: Words = {
    "summary": "Try a failed or cancelled job again",
    "status_code": 202,
    "responses": {
        **answer(202, "The job, queued again.", JobDetail, jobs.JOB_QUEUED),
        **answer(200, "This key was used for the same retry: the job now.", JobDetail, jobs.JOB_DETAIL),
        **problems("not_found", "conflict", "deleted"),
    },
}

TRANSCRIPT: Words = {
    "summary": "Fetch a transcript",
    "response_model": None,
    "responses": {
        200: {
            "description": "The words of the recording, or each chunk's lattice.",
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
            },
        },
        **problems("not_found", "not_done", "deleted"),
    },
}

COSTS: Words = {
    "summary": "What a period cost",
    "responses": {
        200: {
            "model": CostReportOut,
            "description": "Cost by group, in all, and idle; as JSON, a table or a plot.",
            "content": {
                "application/json": {"example": costs.COSTS},
                "text/csv": {"schema": {"type": "string"}, "example": costs.CSV},
                "image/svg+xml": {"schema": {"type": "string"}, "example": costs.SVG},
            },
        }
    },
}

WORKERS: Words = {
    "summary": "List workers",
    "responses": answer(200, "Workers, most recently heard of first.", WorkerList, jobs.WORKERS),
}

MODELS: Words = {
    "summary": "List models",
    "responses": answer(200, "The models that jobs may name.", ModelList, jobs.MODELS),
}

HEALTHZ: Words = {
    "summary": "Does the process live?",
    "responses": answer(200, "It does.", Health, jobs.HEALTH),
}

READYZ: Words = {
    "summary": "Does everything it needs answer?",
    "responses": {
        **answer(200, "All parts answer.", Readiness, jobs.READY),
        **answer(503, "A part does not answer.", Readiness, jobs.NOT_READY),
    },
}
