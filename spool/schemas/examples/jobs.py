"""The examples of the OpenAPI page, all from one archive. Pure data; a test checks each against its
schema."""

from typing import Any

Example = dict[str, Any]

JOB_ID = "job_01JD5T9Q4X8K2M6N0P3R7S1V5W"

UPLOAD_REQUEST: Example = {
    "name": "Interview with the lighthouse keeper",
    "project": "oral-history",
    "options": {
        "model": "demo-tdt",
        "decoder": "beam",
        "beam": 8,
        "nbest": 3,
        "boost": {"phrases": ["Heligoland", "fog horn"], "weight": 1.5},
    },
}

JOB_REQUEST: Example = {
    "source": "s3://archive/1974/reel-0042.flac",
    "name": "Reel 42",
    "project": "oral-history",
    "options": {"model": "demo-tdt", "decoder": "greedy", "channels": "mix"},
}

JOB: Example = {
    "id": JOB_ID,
    "name": "Reel 42",
    "project": "oral-history",
    "state": "running",
    "source": {"kind": "s3", "uri": "s3://archive/1974/reel-0042.flac", "size": 81264640},
    "options": {
        "model": "demo-tdt",
        "decoder": "beam",
        "beam": 8,
        "channels": "mix",
        "nbest": 3,
        "language_model": None,
        "lm_weight": 0.3,
        "lm_blanks": False,
        "pruning": "late",
        "context": "chunk",
        "speech_detector": True,
        "scores": "float",
        "language": None,
        "task": "transcribe",
        "translate_to": None,
        "punctuation": True,
        "timestamps": "auto",
        "prompt": "",
        "hotwords": "",
        "patience": 1.0,
        "length_penalty": None,
        "head": "auto",
        "alignments": "auto",
        "beta": 0.0,
        "blank_penalty": 0.0,
        "ctc_weight": None,
        "reverse_weight": None,
        "attention_weight": 1.0,
        "transducer_weight": 0.0,
        "search_ctc_weight": 0.0,
        "diarization": None,
        "boost": {"count": 2, "sha256": "5d1c…", "weight": 1.5},
    },
    "pool": "cpu",
    "worker": None,
    "lease_owner": "studio-1",
    "attempts": 1,
    "crashes": 0,
    "cancel_requested": False,
    "progress": {"audio_seconds": 3605.2, "done_seconds": 1202.4, "fraction": 0.3335},
    "times": {
        "created_at": "2026-11-20T14:03:11.482000Z",
        "queued_at": "2026-11-20T14:03:11.482000Z",
        "started_at": "2026-11-20T14:03:11.733000Z",
        "finished_at": None,
        "updated_at": "2026-11-20T14:03:42.120000Z",
    },
    "words": None,
    "language": None,
    "coverage": None,
    "error": None,
}

SPEAKERS: Example = {
    "items": [
        {
            "label": "speaker_0",
            "name": "Ada Lund",
            "talk_seconds": 1204.2,
            "words": 3105,
            "has_voice_print": True,
            "matches": [],
        },
        {
            "label": "speaker_1",
            "name": None,
            "talk_seconds": 2011.9,
            "words": 5320,
            "has_voice_print": True,
            "matches": [
                {
                    "voice": "voi_01M7XGXR4EDDTSGREC5JK7BAVD",
                    "name": "Bo Ek",
                    "similarity": 0.957,
                    "recordings": 12,
                }
            ],
        },
    ]
}

VOICES: Example = {
    "items": [
        {
            "id": "voi_01M7XGXR4EDDTSGREC5JK7BAVD",
            "project": "oral-history",
            "name": "Bo Ek",
            "recordings": 12,
        }
    ]
}

SPEAKER_NAMES: Example = {"names": {"speaker_0": "Ada Lund"}, "remember": True}

DIARIZE_REQUEST: Example = {"speakers": {"min": 2, "max": 4}}

COST: Example = {
    "audio_seconds": 1202.4,
    "engine_seconds": 24.31,
    "rtfx": 49.46,
    "billable": "0.002701",
    "wasted": "0",
    "currency": "USD",
}

JOB_DETAIL: Example = JOB | {"cost": COST}

JOB_QUEUED: Example = JOB_DETAIL | {
    "state": "queued",
    "lease_owner": None,
    "attempts": 0,
    "progress": {"audio_seconds": None, "done_seconds": 0.0, "fraction": None},
    "times": JOB["times"] | {"started_at": None},
    "cost": COST | {"audio_seconds": 0.0, "engine_seconds": 0.0, "rtfx": None, "billable": "0"},
}

JOB_DELETED: Example = JOB_DETAIL | {
    "deleted": {"source": "2026-11-20T16:12:05.201Z", "transcript": "2026-11-20T16:12:05.201Z"}
}

JOB_DELETION: Example = JOB_DELETED | {"copies": ["job_01M7XGXR4EDDTSGREC5JK7BAVE"]}

JOB_CANCELLED: Example = JOB_QUEUED | {"state": "cancelled"}

JOB_PAGE: Example = {"items": [JOB], "next_cursor": "eyJhZnRlciI6ImpvYl8wMUpENVQ5UTRYIn0"}

WORKERS: Example = {
    "items": [
        {
            "id": "wrk_01JD5T8Z0A3C5E7G9J1M3P5R7T",
            "name": "studio-1",
            "pool": "metal",
            "host": "studio-1.local",
            "chip": "Apple M4 Max",
            "version": "0.1.0",
            "state": "ready",
            "reason": None,
            "alive": True,
            "models": ["demo-tdt"],
            "loaded_models": ["demo-tdt"],
            "pinned_models": [],
            "gpu_cores": 40,
            "memory_bytes": 68719476736,
            "concurrency": 8,
            "price_per_hour": "0.4",
            "busy_seconds": 2988.5,
            "started_at": "2026-11-20T08:00:02Z",
            "seen_at": "2026-11-20T14:03:40Z",
        }
    ]
}

_MODEL: Example = {"name": "demo-tdt", "default": True, "workers": 1, "streams": False}
_OPENAI_MODEL: Example = {"id": "demo-tdt", "object": "model", "created": 0, "owned_by": "spool"}
MODEL: Example = _MODEL | _OPENAI_MODEL
MODELS: Example = {"items": [_MODEL], "object": "list", "data": [_OPENAI_MODEL]}

DEFAULT_MODEL: Example = {"name": "demo-tdt"}

HEALTH: Example = {"status": "ok", "version": "0.1.0", "detail": []}
STOPPING: Example = {"status": "stopping", "version": "0.1.0", "detail": []}

READY: Example = {
    "ready": True,
    "checks": {
        "database": {"ok": True, "milliseconds": 1, "detail": ""},
        "broker": {"ok": True, "milliseconds": 2, "detail": ""},
        "objects": {"ok": True, "milliseconds": 1, "detail": ""},
    },
}

NOT_READY: Example = {
    "ready": False,
    "checks": READY["checks"] | {"broker": {"ok": False, "milliseconds": 2000, "detail": "no answer in 2 s"}},
}

TRANSCRIPT: Example = {
    "schema_version": "spool.transcript/1",
    "job": JOB_ID,
    "audio": {
        "name": "Reel 42",
        "format": "FLAC",
        "sample_rate": 44100,
        "channels": 1,
        "duration": 1.9,
        "warnings": [],
    },
    "model": {"name": "demo-tdt", "sha256": "9f2c…"},
    "options": {"model": "demo-tdt", "decoder": "greedy", "beam": 4, "channels": "mix"},
    "coverage": {
        "audio_seconds": 1.9,
        "covered_seconds": 1.9,
        "speech_seconds": 1.7,
        "ratio": 1.0,
        "gaps": [],
    },
    "text": "keep the light",
    "words": [
        {"text": "keep", "start": 0.16, "end": 0.48, "confidence": 0.98, "channel": 0},
        {"text": "the", "start": 0.56, "end": 0.64, "confidence": 0.99, "channel": 0},
        {"text": "light", "start": 0.72, "end": 1.2, "confidence": 0.93, "channel": 0},
    ],
    "segments": [
        {
            "start": 0.16,
            "end": 1.2,
            "text": "keep the light",
            "channel": 0,
            "first_word": 0,
            "last_word": 2,
        }
    ],
}

SRT = "1\n00:00:00,160 --> 00:00:01,200\nkeep the light\n"

VTT = "WEBVTT\n\n00:00:00.160 --> 00:00:01.200\nkeep the light\n"

PHRASES: Example = {"phrases": ["Heligoland", "fog horn"]}

AUDIO_LINK: Example = {
    "url": f"/v1/jobs/{JOB_ID}/audio?by=key_01M7…&until=1780000000&signature=5d41…",
    "expires_at": "2026-11-21T12:00:00Z",
}

OVERVIEW: Example = {
    "now": "2026-11-21T00:00:00Z",
    "waiting": [{"pool": "metal", "jobs": 1204, "oldest_seconds": 310.5}],
    "running": {"metal": 16},
    "ended": [
        {"state": "done", "error": "", "jobs": 8800},
        {"state": "cancelled", "error": "", "jobs": 3},
        {"state": "failed", "error": "audio_unreadable", "jobs": 2},
    ],
    "batches_receiving": 0,
    "today": {
        "audio_seconds": 982000.0,
        "engine_seconds": 7400.0,
        "rtfx": 132.7,
        "billable": "0.205",
        "wasted": "0",
        "currency": "USD",
    },
}

PROBLEM: Example = {
    "type": "urn:spool:problem:unknown_model",
    "title": "Unknown model",
    "status": 422,
    "detail": "There is no model 'parakeet-9'. Available models: demo.",
    "code": "unknown_model",
    "instance": "/v1/jobs",
}

TRANSCRIBED_EVENTS = (
    'data: {"type": "transcript.text.delta", "delta": "keep the light"}\n\n'
    'data: {"type": "transcript.text.done", "text": "keep the light"}\n\n'
)
