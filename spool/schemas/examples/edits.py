"""Examples of corrections."""

from spool.schemas.examples.jobs import Example

EDIT_REQUEST: Example = {"first_word": 4, "last_word": 5, "text": "Ada Lund,", "seen": 2, "author": "Bo"}

UNDO_REQUEST: Example = {"author": "Bo"}

EDIT: Example = {
    "revision": 3,
    "first_word": 4,
    "last_word": 5,
    "text": "Ada Lund,",
    "speaker": None,
    "undoes": None,
    "stands": True,
    "author": "Bo",
    "created_at": "2026-11-20T10:12:00Z",
}

EDITS: Example = {"items": [EDIT]}
