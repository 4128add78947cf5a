"""Passages of transcripts as people review them: written with a job's end, deleted with its transcript."""

from sqlalchemy import Column, Double, ForeignKey, Index, Integer, String, Table, Text

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
