"""The examples of versions. Pure data."""

from spool.schemas.examples.jobs import COST, JOB, JOB_ID, Example

OTHER_ID = "job_01JD5TBW7R2F5G9H4K8M1Q6X3Z"

VERSION: Example = {
    "job": JOB_ID,
    "state": "done",
    "model": "parakeet-tdt-0.6b-v3",
    "options": JOB["options"],
    "submitted_by": "key_01M7KQ4X8K2M6N0P3R7S1V5W9A",
    "created_at": "2026-11-20T14:01:07.120000Z",
    "finished_at": "2026-11-20T14:03:09.310000Z",
    "words": 9120,
    "deleted": False,
    "cost": COST,
}
VERSIONS: Example = {"recording": JOB_ID, "stored": True, "items": [VERSION]}
RERUN: Example = {"options": {"model": "parakeet-tdt-1.1b"}}

WORD: Example = {"text": "Petersen", "start": 4711.52, "end": 4712.3, "confidence": 0.41}
DIFFERENCE: Example = {
    "channel": 0,
    "start": 4711.52,
    "end": 4712.3,
    "doubt": 0.59,
    "base": [WORD],
    "other": [{**WORD, "text": "Pedersen", "confidence": 0.93}],
}
DIFF: Example = {
    "base": JOB_ID,
    "other": OTHER_ID,
    "words": 9120,
    "edits": 1,
    "wer": 0.00010964912280701755,
    "total": 1,
    "items": [DIFFERENCE],
}

COMPARED: Example = {
    "base": JOB_ID,
    "other": OTHER_ID,
    "name": "Reel 42",
    "words": 9120,
    "edits": 114,
    "wer": 0.0125,
    "cost_before": "0.0412",
    "cost_after": "0.0893",
}
SUMS: Example = {
    "recordings": 1,
    "words": 9120,
    "edits": 114,
    "wer": 0.0125,
    "cost_before": "0.0412",
    "cost_after": "0.0893",
    "currency": "EUR",
}
BATCH_DIFF: Example = {"items": [COMPARED], "sums": SUMS, "next_cursor": None}
