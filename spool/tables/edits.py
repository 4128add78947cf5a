"""Corrections of transcripts, and the names that their speakers had: never changed, and deleted only with the
transcript."""

from sqlalchemy import JSON, Column, Index, Integer, String, Table

from spool.domain.archive.edits import Edit
from spool.tables.base import job_key, metadata
from spool.tables.record import table_of

edits = table_of(
    "edits",
    Edit,
    job_key(),
    # How many words the transcript has from this revision on.
    Column("words", Integer, nullable=False),
    # The names that it wrote in place of what was recognised; NULL for none.
    Column("names", JSON(none_as_null=True)),
    key=("revision",),
)
_SPREAD = edits.c.from_job.is_not(None)
Index(
    "ix_edits_from_job_from_revision",
    edits.c.from_job,
    edits.c.from_revision,
    postgresql_where=_SPREAD,
    sqlite_where=_SPREAD,
)

# The names that a transcript's speakers had before a renaming, by label: a citation of that time has them.
former_names = Table(
    "former_names",
    metadata,
    job_key(),
    Column("number", Integer, primary_key=True),
    Column("transcript_sha256", String(64), nullable=False),
    Column("names", JSON, nullable=False),
)
