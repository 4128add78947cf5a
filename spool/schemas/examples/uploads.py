"""Examples of direct uploads for the OpenAPI page."""

from typing import Any

Example = dict[str, Any]

UPLOAD_ID = "upl_01M7ZJ8XQ4T3V5W6Y7Z8A9B0C1"
_SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

REQUEST: Example = {"name": "reel-42.flac", "bytes": 41_943_040, "sha256": _SHA256}

UPLOAD: Example = {
    "id": UPLOAD_ID,
    "state": "open",
    "source": f"upload://{UPLOAD_ID}",
    "name": "reel-42.flac",
    "project": "default",
    "bytes": 41_943_040,
    "sha256": _SHA256,
    "part_bytes": 16_777_216,
    "parts": 3,
    "job": None,
    "created_at": "2026-11-23T09:02:11.114000Z",
    "expires_at": "2026-11-30T09:02:11.114000Z",
}

COMPLETE: Example = UPLOAD | {"state": "complete"}

PARTS: Example = {
    "items": [
        {"number": 1, "offset": 0, "bytes": 16_777_216, "received": True, "url": None},
        {
            "number": 2,
            "offset": 16_777_216,
            "bytes": 16_777_216,
            "received": False,
            "url": "https://s3.example.org/spool/jobs/job_01M7…/source?partNumber=2&uploadId=…&X-Amz-Signature=…",
        },
    ],
    "next": 3,
    "expires_at": "2026-11-23T10:02:11.114000Z",
}
