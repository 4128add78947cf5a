"""Corrections of transcripts: events, never changed, and deleted only with the transcript."""

from sqlalchemy import JSON, Column, ForeignKey, Integer, String, Table, Text

from spool.tables.base import ID, UtcDateTime, metadata

edits = Table(
    "edits",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    # 1, 2, 3 … of the job, without a gap.
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("first_word", Integer, nullable=False),
    Column("last_word", Integer, nullable=False),
    Column("text", Text),
    Column("speaker", String(16)),
    Column("undoes", Integer),
    Column("author", String(200), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # How many words the transcript has from this revision on.
    Column("words", Integer, nullable=False),
    # The names that it wrote in place of what was recognised; NULL for none.
    Column("names", JSON(none_as_null=True)),
)
