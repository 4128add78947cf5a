"""Examples of watched folders and buckets for the OpenAPI page."""

from typing import Any

from spool.schemas.examples.outputs import OUTPUT

Example = dict[str, Any]
SOURCE_ID = "src_01M7XGXR4EDDTSGREC5JK7BAVD"

REQUEST: Example = {
    "source": "s3://archive/incoming/",
    "name": "Incoming",
    "project": "oral-history",
    "every_seconds": 300.0,
    "options": {"model": "demo-tdt"},
    "output": OUTPUT,
}

CHANGE: Example = {"every_seconds": 60.0, "options": {"model": "parakeet-tdt-1.1b"}}

SOURCE: Example = {
    "id": SOURCE_ID,
    "name": "Incoming",
    "project": "oral-history",
    "source": "s3://archive/incoming/",
    "state": "watching",
    "error": None,
    "failing_since": None,
    "every_seconds": 300.0,
    "settle_seconds": 0.0,
    "options": {"model": "demo-tdt"},
    "tags": {},
    "output": OUTPUT,
    "counts": {"settling": 0, "taken": 41, "skipped": 3, "refused": 0},
    "files": 44,
    "created_at": "2026-11-20T14:03:11.482000Z",
    "paused_at": None,
    "listed_at": "2026-11-20T14:28:12.010000Z",
    "next_listing_at": "2026-11-20T14:33:12.010000Z",
}

LIST: Example = {"items": [SOURCE]}

ITEMS: Example = {
    "items": [
        {
            "path": "1974/reel-0042.flac",
            "version": '"9b2cf535f27731c974343645a3985328"',
            "state": "taken",
            "reason": None,
            "job": "job_01M7XGXR4EDDTSGREC5JK7BAVD",
            "seen_at": "2026-11-20T14:03:12.482000Z",
        },
        {
            "path": "1974/notes.pdf",
            "version": '"0cc175b9c0f1b6a831c399e269772661"',
            "state": "skipped",
            "reason": "not audio: neither its content nor its name matches a format that Spool can read",
            "job": None,
            "seen_at": "2026-11-20T14:03:12.482000Z",
        },
    ],
    "next_cursor": None,
}

NOTIFICATION: Example = {
    "Records": [
        {
            "eventName": "s3:ObjectCreated:Put",
            "s3": {"bucket": {"name": "archive"}, "object": {"key": "incoming/1974/reel-0042.flac"}},
        }
    ]
}

MARKED: Example = {"marked": 1, "to_confirm": []}
