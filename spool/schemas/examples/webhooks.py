"""The examples of the OpenAPI page about webhooks. Pure data; a test checks each against its schema."""

from spool.schemas.examples.jobs import Example

WEBHOOK_ID = "whk_01JD5TB0M3V7C1X5Z9Q2W6E8R4"

REQUEST: Example = {
    "url": "https://archive.example.org/hooks/spool",
    "project": "oral-history",
    "events": ["job.failed", "batch.done"],
    "description": "The catalogue",
}

WEBHOOK: Example = {
    "id": WEBHOOK_ID,
    "project": "oral-history",
    "url": "https://archive.example.org/hooks/spool",
    "events": ["job.failed", "batch.done"],
    "batch": None,
    "description": "The catalogue",
    "state": "failing",
    "reason": None,
    "created_at": "2026-11-16T14:00:00Z",
    "succeeded_at": "2026-11-16T15:02:32Z",
    "failing_since": "2026-11-16T15:20:00Z",
    "delivered": 12,
    "given_up": 0,
}

MADE: Example = {
    **WEBHOOK,
    "state": "enabled",
    "succeeded_at": None,
    "failing_since": None,
    "delivered": 0,
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "old_secret_until": None,
}

ROTATED: Example = {**WEBHOOK, "secret": MADE["secret"], "old_secret_until": "2026-11-17T16:00:00Z"}

LIST: Example = {"items": [WEBHOOK]}

DELIVERY: Example = {
    "id": "msg_01JD5TC4N8Q2W6E0R4T8Y2U6I0",
    "type": "batch.done",
    "state": "pending",
    "created_at": "2026-11-16T15:20:00Z",
    "next_try_at": "2026-11-16T15:25:06Z",
    "ended_at": None,
    "tries": [
        {
            "at": "2026-11-16T15:20:01Z",
            "milliseconds": 214,
            "status": 500,
            "error": None,
            "replayed": False,
        }
    ],
    "body": {
        "type": "batch.done",
        "timestamp": "2026-11-16T15:20:00Z",
        "data": {"project": "oral-history", "batch": "bat_01JD5T9Q4X8K2M6N0P3R7S1V5W"},
    },
}

DELIVERIES: Example = {"items": [DELIVERY], "next_cursor": None}
