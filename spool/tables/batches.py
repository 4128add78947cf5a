"""Batches of jobs."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import CheckConstraint, Index

from spool.domain.columns import Id, Length, Name, Sha256, SmallInt
from spool.domain.priority import NORMAL
from spool.tables.base import partial_index
from spool.tables.record import table_of


@dataclass(frozen=True)
class NewBatch:
    """A batch to be created. `request_hash` tells a repeated `idempotency_key` from a misused one."""

    project: Name
    name: str
    source: str
    """The address it was listed from, or `manifest`."""
    reuse: bool
    request_hash: Sha256
    idempotency_key: Annotated[str, Length(255)] | None = None
    key_id: Id | None = None
    """The API key that submitted it."""
    priority: SmallInt = NORMAL
    deadline: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Batch(NewBatch):
    """A batch as read from its row. `spool.store.batch_progress` counts its jobs."""

    id: Id
    accepted: int = 0
    """Jobs created."""
    lines: int | None
    """Lines, objects or files read; None until all are read."""
    bad: int = 0
    bad_lines: list[dict[str, Any]]
    """The first bad lines: `line`, `custom_id`, `code`, `message`."""
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None
    """When the whole submission was read; until then more jobs may come."""
    cancelled_at: datetime | None
    ended_at: datetime | None = None
    """When all of its jobs were found to have ended."""
    late: bool = False
    """By the last forecast, the deadline can no longer be met."""
    expected_at: datetime | None = None
    """When it will end, by the last forecast."""
    expected_basis: str | None = None
    unchanged: int = 0
    """Lines that create no job, since an earlier job has the same recording and options."""
    skipped: int = 0
    """Files of the listing that make no job."""
    skipped_files: list[dict[str, str]] = field(default_factory=list)
    """The first of them: `path`, `reason`."""


batches = table_of(
    "batches",
    Batch,
    CheckConstraint("accepted >= 0 AND bad >= 0", name="counts"),
    Index("ix_batches_created_at_id", "created_at", "id"),
    partial_index("ix_batches_deadline", "deadline", where="deadline IS NOT NULL"),
    Index("ix_batches_project_created_at_id", "project", "created_at", "id"),
    partial_index(
        "ix_batches_project_idempotency_key",
        "project",
        "idempotency_key",
        where="idempotency_key IS NOT NULL",
        unique=True,
    ),
)
