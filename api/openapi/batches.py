"""The OpenAPI texts of the routes of batches."""

import json

from fastapi.responses import StreamingResponse

from api.delivery.batch_results import NDJSON
from api.openapi.jobs import Words, answer, describe, problems, submission
from spool.schemas.batches import BatchDetail, BatchPage, BatchRequest, BatchRetried, BatchUploadRequest
from spool.schemas.examples import batches as examples

_LINES: Words = {
    "schema": {"type": "string", "description": "One source per line, as JSON."},
    "example": examples.MANIFEST,
}

_BODY: Words = {
    "requestBody": {
        "required": True,
        "content": {
            NDJSON: _LINES,
            **dict.fromkeys(("application/jsonl", "application/jsonlines", "application/json-lines"), _LINES),
            "text/csv": {
                "schema": {"type": "string", "description": "One source per row, under a line of names."},
                "example": "source,custom_id,tags.box\ns3://archive/1974/reel-0042.flac,reel-42,7\n",
            },
            "application/json": {
                "schema": BatchRequest.model_json_schema(),
                "example": examples.BATCH_REQUEST,
            },
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "The manifest."},
                        "request": BatchUploadRequest.model_json_schema(),
                    },
                },
                "encoding": {"request": {"contentType": "application/json"}},
                "example": {"request": examples.BATCH_UPLOAD_REQUEST, "file": examples.MANIFEST},
            },
        },
    }
}

CREATE = submission(
    "batch",
    _BODY,
    BatchDetail,
    examples.BATCH_DETAIL,
    examples.BATCH_DETAIL,
    "bad_lines",
    "source_missing",
)

LIST = describe(
    "List batches", answer(200, "A page of batches, newest first.", BatchPage, examples.BATCH_PAGE)
)

ONE = describe(
    "Show a batch",
    answer(200, "The batch with its progress and cost.", BatchDetail, examples.BATCH_DETAIL),
    problems("not_found"),
)

RESULTS = describe(
    "Fetch a batch's results",
    {
        200: {
            "description": "One line of JSON per job.",
            "content": {
                NDJSON: {
                    "schema": {"type": "string", "description": "Lines like the example."},
                    "example": json.dumps(examples.RESULT),
                }
            },
        }
    },
    problems("not_found"),
    response_model=None,
    response_class=StreamingResponse,
)
TRANSCRIPTS = describe(
    "Fetch a batch's transcripts as a zip",
    {
        200: {
            "description": "One file per finished job, and `missing.tsv` with the jobs that have none.",
            "content": {
                "application/zip": {"schema": {"type": "string", "format": "binary"}, "example": "PK…"}
            },
        }
    },
    problems("not_found"),
    response_model=None,
    response_class=StreamingResponse,
)

RETRY = describe(
    "Retry a batch's failed jobs",
    answer(202, "How many were queued again.", BatchRetried, examples.BATCH_RETRIED),
    problems("not_found", "conflict"),
    status_code=202,
)

CANCEL = describe(
    "Cancel a batch",
    answer(200, "The batch, cancelled or stopping.", BatchDetail, examples.BATCH_DETAIL),
    problems("not_found", "conflict"),
)
