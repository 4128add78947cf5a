"""Passages of transcripts as people review them: written with a job's end, deleted with its transcript."""

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Integer, String, Table, Text

from spool.tables.base import ID, NAME, UtcDateTime, metadata

review_passages = Table(
    "review_passages",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    # 0, 1, 2 … of the job, by start.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("project", NAME, nullable=False),
    Column("channel", Integer, nullable=False),
    Column("start_seconds", Double, nullable=False),
    Column("end_seconds", Double, nullable=False),
    # Words as they were recognised; of speech without words the last one is before the first.
    Column("first_word", Integer, nullable=False),
    Column("last_word", Integer, nullable=False),
    Column("text", Text, nullable=False),
    # From 0 to 1 (`spool.domain.archive.review`).
    Column("doubt", Double, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("versions", Double, nullable=False),
    Column("speech", Double, nullable=False),
    Column("language", Double, nullable=False),
    # The errors of the passage, and how many words it should have, by the standing corrections.
    Column("errors", Integer, nullable=False),
    Column("words", Integer, nullable=False),
    Column("checked_at", UtcDateTime),
    Column("checked_by", String(200)),
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

# The sums of a recording's passages, changed in the commits that write and check them.
review_recordings = Table(
    "review_recordings",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("project", NAME, nullable=False),
    Column("passages", Integer, nullable=False),
    Column("unchecked", Integer, nullable=False),
    # Means by the passages' lengths, with checked ones counted as without doubt.
    Column("doubt", Double, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("versions", Double, nullable=False),
    Column("speech", Double, nullable=False),
    Column("language", Double, nullable=False),
)
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

review_samples = Table(
    "review_samples",
    metadata,
    Column("id", ID, primary_key=True),
    Column("project", NAME, nullable=False),
    # What it was drawn from: jobs of this batch and model, or any.
    Column("batch", ID),
    Column("model", NAME),
    Column("population", Integer, nullable=False),
    Column("margin", Double, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("size", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("created_by", String(200), nullable=False),
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
