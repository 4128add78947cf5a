"""Watched folders and buckets, their files, and keys that notifications named."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import CheckConstraint, Column, ForeignKey, ForeignKeyConstraint, Index, Table, Text

from spool.domain.columns import Id, Name
from spool.tables.base import ID, UtcDateTime, metadata
from spool.tables.record import table_of

ItemState = Literal["settling", "taken", "skipped", "refused"]


@dataclass(frozen=True)
class NewSource:
    """A source to be created. `request`: the options of its jobs; `reads`: the addresses that its key may
    read."""

    project: Name
    name: str
    address: str
    request: dict[str, Any]
    every_seconds: float
    settle_seconds: float
    key_id: Id | None = None
    reads: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class WatchedSource(NewSource):
    """A source as read from its row."""

    id: Id
    created_at: datetime
    paused_at: datetime | None
    due_at: datetime
    lease_owner: Name | None
    lease_until: datetime | None
    listed_at: datetime | None
    files: int | None
    error: str | None
    failing_since: datetime | None


@dataclass(frozen=True)
class Item:
    """A version of a file as read from its row."""

    id: Id
    source_id: Id
    place: Name
    version: Name
    state: ItemState
    reason: str | None
    job_id: Id | None
    created_at: datetime


sources = table_of(
    "sources",
    WatchedSource,
    CheckConstraint("(lease_owner IS NULL) = (lease_until IS NULL)", name="lease"),
    CheckConstraint("(error IS NULL) = (failing_since IS NULL)", name="failing"),
    Index("ix_sources_project", "project"),
    Index("ix_sources_due_at", "due_at"),
)

# A row for each version of each file that was seen, which is never submitted again.
source_items = table_of(
    "source_items",
    Item,
    ForeignKeyConstraint(["source_id"], ["sources.id"], ondelete="CASCADE"),
    CheckConstraint("state IN ('settling', 'taken', 'skipped', 'refused')", name="state"),
    CheckConstraint("(state = 'taken') = (job_id IS NOT NULL)", name="job"),
    Index("ix_source_items_version", "source_id", "place", "version", unique=True),
    Index("ix_source_items_source_id_state_created_at_id", "source_id", "state", "created_at", "id"),
)

# Keys of objects that a notification named; the listing would find them too.
source_marks = Table(
    "source_marks",
    metadata,
    Column("source_id", ID, ForeignKey("sources.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Text, primary_key=True),
    Column("created_at", UtcDateTime, nullable=False),
)
