"""Cursors: where a page ended, as text that only the query it came from accepts back. Knows no table."""

import base64
import binascii
import hashlib
import json
from datetime import datetime

from spool.errors import InvalidRequest


def write_cursor(created_at: datetime, row_id: str, query: object) -> str:
    """The place after a row, bound to `query` (anything whose repr says all of it)."""
    place = [_fingerprint(query), created_at.isoformat(), row_id]
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def read_cursor(cursor: str, query: object) -> tuple[datetime, str]:
    """The place that `write_cursor` wrote. Raises InvalidRequest for other text and for another query's
    cursor."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        fingerprint, created, row_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        created_at = datetime.fromisoformat(created)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise InvalidRequest("The cursor cannot be read; begin again without one.") from None
    if fingerprint != _fingerprint(query) or not isinstance(row_id, str) or created_at.tzinfo is None:
        raise InvalidRequest("The cursor belongs to another query; begin again without one.")
    return created_at, row_id


def _fingerprint(query: object) -> str:
    return hashlib.sha256(repr(query).encode()).hexdigest()[:16]
