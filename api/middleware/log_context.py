"""Which job or batch a request is about, for the lines and traces that tell of it.

A handler says it where it finds out (`concerns`); the holder is made once a request, so that what a handler's
thread says is seen by whoever tells of the request.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_subject: ContextVar[dict[str, str] | None] = ContextVar("api_subject", default=None)


@contextlib.contextmanager
def request_subject() -> Iterator[dict[str, str]]:
    """A new request begins; what it will be about."""
    holder: dict[str, str] = {}
    before = _subject.set(holder)
    try:
        yield holder
    finally:
        _subject.reset(before)


def concerns(ids: dict[str, str]) -> None:
    """The request is about this: `job_id`, `batch_id` or both."""
    holder = _subject.get()
    if holder is not None:
        holder |= ids


def subject() -> dict[str, str]:
    """What is known of it so far."""
    return dict(_subject.get() or {})
