"""The job or batch that a request is about, for its log lines and traces.

A handler calls `set_subject` once it knows. The holder is created once per request, so that what the
handler's thread sets is visible to the access log.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_subject: ContextVar[dict[str, str] | None] = ContextVar("api_subject", default=None)


@contextlib.contextmanager
def request_subject() -> Iterator[dict[str, str]]:
    """The subject of one request, for the duration of the block."""
    holder: dict[str, str] = {}
    before = _subject.set(holder)
    try:
        yield holder
    finally:
        _subject.reset(before)


def set_subject(ids: dict[str, str]) -> None:
    """Set the subject: `job_id`, `batch_id` or both."""
    holder = _subject.get()
    if holder is not None:
        holder |= ids


def get_subject() -> dict[str, str]:
    """The subject, as far as it is known."""
    return dict(_subject.get() or {})
