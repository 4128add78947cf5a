"""Examples of the review. Pure data."""

from spool.schemas.examples.jobs import JOB_ID, Example

PASSAGE: Example = {
    "job": JOB_ID,
    "name": "Reel 42",
    "project": "oral-history",
    "model": "parakeet-tdt",
    "passage": 7,
    "channel": 0,
    "start": 4711.52,
    "end": 4720.1,
    "first_word": 280,
    "last_word": 301,
    "text": "and that night the storm fog horn was broken",
    "doubt": 0.46,
    "doubts": {"confidence": 0.4, "versions": 0.1, "speech": 0.0, "language": 0.0},
    "checked_by": None,
    "checked_at": None,
    "url": f"/#/jobs/{JOB_ID}?t=4711.52",
}

REVIEW_PAGE: Example = {"items": [PASSAGE], "next_cursor": None}

RECORDING: Example = {
    "job": JOB_ID,
    "name": "Reel 42",
    "project": "oral-history",
    "model": "parakeet-tdt",
    "passages": 212,
    "unchecked": 180,
    "doubt": 0.2313,
    "doubts": {"confidence": 0.18, "versions": 0.06, "speech": 0.01, "language": 0.0},
    "url": f"/#/review?job={JOB_ID}",
}

RECORDING_PAGE: Example = {"items": [RECORDING], "next_cursor": None}

CHECK_REQUEST: Example = {"author": "Bo"}

CHECKED: Example = PASSAGE | {"checked_by": "Bo", "checked_at": "2026-11-20T10:12:00Z"}

SIZE: Example = {"population": 41200, "words": 1502000, "passages": 143}

SAMPLE_REQUEST: Example = {"project": "oral-history", "model": "parakeet-tdt", "margin": 0.02}

ESTIMATE: Example = {
    "checked": 143,
    "words": 5210,
    "errors": 401,
    "rate": 0.077,
    "low": 0.061,
    "high": 0.0929,
}

SAMPLE: Example = {
    "id": "smp_01M7WEC0XJ9KQ2T5V8YB4N6PRD",
    "project": "oral-history",
    "batch": None,
    "model": "parakeet-tdt",
    "population": 41200,
    "margin": 0.02,
    "seed": 7,
    "size": 143,
    "gone": 0,
    "created_at": "2026-11-20T10:12:00Z",
    "created_by": "Bo",
    "estimate": ESTIMATE,
    "by_model": {"parakeet-tdt": ESTIMATE},
}

SAMPLE_PAGE: Example = {"items": [SAMPLE], "next_cursor": None}
