"""Examples of outputs and connections for the OpenAPI page."""

from typing import Any

Example = dict[str, Any]

OUTPUT: Example = {
    "prefix": "s3://theirs/transcripts/",
    "formats": ["srt", "txt"],
    "layout": "mirror",
    "connection": "theirs",
}

EXPORTS: Example = {
    "items": [
        {
            "format": "srt",
            "state": "written",
            "uri": "s3://theirs/transcripts/1974/reel-0042.flac.srt",
            "revision": 1,
            "error": None,
            "tries": 1,
            "next_try_at": None,
            "written_at": "2026-11-20T14:21:08.114000Z",
        },
        {
            "format": "txt",
            "state": "pending",
            "uri": "s3://theirs/transcripts/1974/reel-0042.flac.txt",
            "revision": 1,
            "error": "The object store does not answer for s3://theirs/transcripts/1974/reel-0042.flac.txt.",
            "tries": 2,
            "next_try_at": "2026-11-20T14:26:08.114000Z",
            "written_at": None,
        },
    ]
}

CONNECTION: Example = {
    "name": "theirs",
    "project": "oral-history",
    "endpoint": "https://s3.example.org",
    "region": "us-east-1",
    "prefix": "s3://theirs/transcripts/",
    "access": "write",
    "key_id": "AKIAEXAMPLE",
    "created_at": "2026-11-20T14:03:11.482000Z",
}

CONNECTION_REQUEST: Example = {key: value for key, value in CONNECTION.items() if key != "created_at"} | {
    "secret": "…"
}

CONNECTIONS: Example = {"items": [CONNECTION]}
