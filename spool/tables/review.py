"""Passages of transcripts as people review them: written with a job's end, deleted with its transcript."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from sqlalchemy import Column, Double, ForeignKey, Index, Integer, Table

from spool.domain.archive.review import Doubts, ReviewPassage
from spool.domain.columns import BigInt, Id, Name, Unprefixed
from spool.tables.base import ID, NAME, UtcDateTime, job_key, metadata
from spool.tables.record import table_of

review_passages = table_of(
    "review_passages",
    ReviewPassage,
    job_key(),
    Column("project", NAME, nullable=False),
    # All of its doubts together, from 0 to 1.
    Column("doubt", Double, nullable=False),
    # The errors of the passage, and how many words it should have, by the standing corrections.
    Column("errors", Integer, nullable=False),
    Column("words", Integer, nullable=False),
    Column("checked_at", UtcDateTime),
    Column("checked_by", NAME),
    key=("number",),
)
_UNCHECKED = review_passages.c.checked_at.is_(None)
_ORDER = (review_passages.c.doubt, review_passages.c.job_id, review_passages.c.number)
Index(
    "ix_review_passages_project_doubt",
    review_passages.c.project,
    *_ORDER,
    postgresql_where=_UNCHECKED,
    sqlite_where=_UNCHECKED,
)
Index("ix_review_passages_doubt", *_ORDER, postgresql_where=_UNCHECKED, sqlite_where=_UNCHECKED)


@dataclass(frozen=True)
class RecordingSums:
    """The sums of a recording's passages, changed in the commits that write and check them."""

    project: Name
    passages: int
    unchecked: int
    doubt: float
    """Like `doubts` a mean over the passages by their lengths, where a checked one has no doubt."""
    doubts: Annotated[Doubts, Unprefixed()]


review_recordings = table_of("review_recordings", RecordingSums, job_key(), key=())
_OPEN = review_recordings.c.unchecked > 0
_BY_DOUBT = (review_recordings.c.doubt, review_recordings.c.job_id)
Index(
    "ix_review_recordings_project_doubt",
    review_recordings.c.project,
    *_BY_DOUBT,
    postgresql_where=_OPEN,
    sqlite_where=_OPEN,
)
Index("ix_review_recordings_doubt", *_BY_DOUBT, postgresql_where=_OPEN, sqlite_where=_OPEN)


@dataclass(frozen=True)
class SampleScope:
    """What a sample is drawn from: the passages with words of each recording's newest transcript in a
    project, or the newest of `model`; or of a batch's jobs, whatever ran after them."""

    project: Name
    batch: Id | None = None
    model: Name | None = None


@dataclass(frozen=True, kw_only=True)
class Sample(SampleScope):
    """A sample of passages that was drawn for people to check."""

    id: Id
    population: int
    """How many passages it was drawn from, of which it has `size`."""
    margin: float
    """The precision it was drawn for."""
    seed: BigInt
    size: int
    created_at: datetime
    created_by: Name


review_samples = table_of(
    "review_samples",
    Sample,
    Index("ix_review_samples_project_created_at_id", "project", "created_at", "id"),
)

review_sample_passages = Table(
    "review_sample_passages",
    metadata,
    # Without a foreign key to the passages: the drawn sample stays known when a transcript is deleted.
    Column("sample_id", ID, ForeignKey("review_samples.id", ondelete="CASCADE"), primary_key=True),
    Column("job_id", ID, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
)
