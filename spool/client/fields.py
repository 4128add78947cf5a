"""What calls take by name: the fields of submissions, and what narrows a list.

None means the server's default. Written by `python -m ops.command_line` from `spool/schemas/` and
`api/routes/`: change it there."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict

from spool.client.options import Options
from spool.domain.jobs import JobState

State = JobState | Literal["queued", "running", "done", "failed", "cancelled"]


class JobFields(TypedDict, total=False):
    """A submission's fields besides its source."""

    project: str | None
    options: Options | None
    pool: str | None
    worker: str | None
    requires: Mapping[str, Any] | None
    tags: Mapping[str, str] | None
    priority: Literal["low", "normal", "high"] | None
    output: Mapping[str, Any] | None
    deduplicate: bool | None
    name: str | None
    reuse: bool | None
    deadline: datetime | str | None
    connection: str | None


class BatchFields(JobFields, total=False):
    """A batch's, besides its source; lines have their own over these."""

    strict: bool | None


class SourceFields(TypedDict, total=False):
    """A watched source's, besides its address."""

    project: str | None
    options: Options | None
    pool: str | None
    worker: str | None
    requires: Mapping[str, Any] | None
    tags: Mapping[str, str] | None
    priority: Literal["low", "normal", "high"] | None
    output: Mapping[str, Any] | None
    deduplicate: bool | None
    name: str | None
    every_seconds: float | None
    settle_seconds: float | None
    reuse: bool | None
    connection: str | None


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

    speaker: str | None
    language: str | None
    confidence: float | None
    alternatives: bool | None
    versions: Literal["newest", "all"] | None
    closed: bool | None
    sound: str | None
    spelling: str | None


class ReviewQuery(JobQuery, total=False):
    """Which recordings the review lists."""

    model: str | None
    reason: Literal["confidence", "versions", "speech", "evidence", "language"] | None


class PassageQuery(ReviewQuery, total=False):
    """Which passages the review lists."""

    sample: str | None
    job: str | None
    checked: bool | None
    versions: Literal["newest", "all"] | None
    closed: bool | None
