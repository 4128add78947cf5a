"""What calls take by name: the fields of submissions, and what narrows a list.

A type checker refuses a name that the server does not know; tests compare these with the server's own. The
options of jobs are written from their declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from spool.client.options import Options
from spool.domain.jobs import JobState
from spool.domain.priority import PriorityName

if TYPE_CHECKING:  # it needs much that a client does not
    from spool.domain.archive.review import Reason

State = JobState | Literal["queued", "running", "done", "failed", "cancelled"]


class _Fields(TypedDict, total=False):
    name: str | None
    project: str | None
    options: Options | None
    pool: str | None
    worker: str | None
    requires: Mapping[str, Any] | None
    tags: Mapping[str, str] | None
    reuse: bool | None
    deduplicate: bool | None
    priority: PriorityName | None
    output: Mapping[str, Any] | None
    connection: str | None


class JobFields(_Fields, total=False):
    """A submission's fields besides its source; None means the server's default."""

    deadline: datetime | str | None


class BatchFields(JobFields, total=False):
    """A batch's fields besides its source; lines have their own over these."""

    strict: bool | None


class SourceFields(_Fields, total=False):
    """A watched source's fields besides its address."""

    every_seconds: float | None
    settle_seconds: float | None


class JobQuery(TypedDict, total=False):
    """Which jobs a list, the search or the review covers."""

    project: str | None
    batch: str | None
    name: str | None
    tag: str | None
    created_from: datetime | None
    created_to: datetime | None


class JobListQuery(JobQuery, total=False):
    """Which jobs are listed."""

    state: State | None
    pool: str | None
    worker: str | None
    first_words: bool | None
    content: str | None


class SearchQuery(JobQuery, total=False):
    """What the search finds."""

    sound: str | None
    spelling: str | None
    speaker: str | None
    language: str | None
    confidence: float | None
    alternatives: bool | None
    closed: bool | None
    versions: Literal["newest", "all"] | None


class ReviewQuery(JobQuery, total=False):
    """Which recordings the review lists."""

    model: str | None
    reason: Reason | None


class PassageQuery(ReviewQuery, total=False):
    """Which passages the review lists."""

    checked: bool | None
    sample: str | None
    job: str | None
    closed: bool | None
    versions: Literal["newest", "all"] | None
