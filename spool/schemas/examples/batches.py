"""The examples of the OpenAPI page for batches. Pure data; a test checks each against its schema."""

from spool.schemas.examples.jobs import JOB_ID, Example

BATCH_ID = "bat_01JD5TB3Y6M9R2V5Z8C1F4J7N0"

BATCH_REQUEST: Example = {
    "source": "s3://archive/1974/",
    "name": "Reels of 1974",
    "project": "oral-history",
    "options": {"decoder": "greedy"},
    "tags": {"collection": "lighthouses"},
}

BATCH_UPLOAD_REQUEST: Example = {"name": "Reels of 1974", "project": "oral-history", "strict": True}

MANIFEST = (
    '{"source": "s3://archive/1974/reel-0042.flac", "custom_id": "reel-42", "tags": {"box": "7"}}\n'
    '{"source": "https://example.org/reel-0043.mp3", "custom_id": "reel-43", "options": {"beam": 8}}\n'
)

BATCH: Example = {
    "id": BATCH_ID,
    "name": "Reels of 1974",
    "project": "oral-history",
    "source": "s3://archive/1974/",
    "state": "running",
    "reuse": True,
    "lines": {"read": 5001, "accepted": 5000, "bad": 1, "skipped": 12},
    "counts": {"queued": 3761, "running": 8, "done": 1230, "failed": 1, "cancelled": 0},
    "times": {
        "created_at": "2026-11-20T14:00:00.120000Z",
        "closed_at": "2026-11-20T14:00:02.480000Z",
        "cancelled_at": None,
        "updated_at": "2026-11-20T14:00:02.480000Z",
    },
}

BATCH_DETAIL: Example = BATCH | {
    "bad_lines": [
        {
            "line": 17,
            "custom_id": "reel-42",
            "code": "duplicate_custom_id",
            "message": "An earlier line of this batch has the same custom_id.",
        }
    ],
    "reused": 12,
    "audio": {
        "done_seconds": 756180.0,
        "left_seconds": 2318012.5,
        "basis": "3761 recordings have not been opened yet; each is assumed to take 615 s, "
        "the mean of the 1239 whose length is known.",
    },
    "speed": {"rtfx_now": 49.4, "pace": 320.1},
    "time": {
        "left_seconds": 7241.5,
        "basis": "The audio left, at 320.1 s of audio a second: the pace of the last 600 s.",
    },
    "cost": {
        "billable": "1.698",
        "wasted": "0.002",
        "expected": "6.914",
        "currency": "USD",
        "basis": "The cost so far, plus the remaining audio at the mean price of the 209.00 h billed so far.",
    },
}

BATCH_PAGE: Example = {"items": [BATCH], "next_cursor": "WyI4NmM0ZjBhZTEyIiwgIjIwMjYi"}

BATCH_RETRIED: Example = {"retried": 1}

RESULT: Example = {
    "custom_id": "reel-42",
    "line": 1,
    "job": JOB_ID,
    "name": "reel-0042.flac",
    "source": "s3://archive/1974/reel-0042.flac",
    "tags": {"box": "7"},
    "state": "done",
    "audio_seconds": 1.9,
    "reused_from": None,
    "text": "keep the light",
    "error": None,
}
