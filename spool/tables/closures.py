"""What is closed to readers, and the log of every opening."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index

from spool.domain.archive.closures import Closure
from spool.domain.columns import Id, Name, Sha256
from spool.tables.base import partial_index
from spool.tables.record import table_of


@dataclass(frozen=True)
class Opening:
    """Somebody with the right was given something closed."""

    id: Id
    job_id: Id
    project: Name
    by: Name
    """A key's id, `operator` or `anybody`."""
    way: Name
    """How, such as `GET /v1/search`."""
    at: datetime


@dataclass(frozen=True)
class NotPrivate:
    """A person decided that some words of a recording need not be closed: they are suggested no more, in any
    version of it."""

    recording: Id
    """The first job on the recording."""
    text_sha256: Sha256
    """Of the kind of the suggestion and its words."""
    job_id: Id
    """Whose transcript had them: the decision is deleted with it."""
    decided_by: Name
    decided_at: datetime


closures = table_of(
    "closures",
    Closure,
    ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
    CheckConstraint("kind IN ('whole', 'range', 'speaker')", name="kind"),
    CheckConstraint(
        "(kind = 'range') = (start_seconds IS NOT NULL AND end_seconds IS NOT NULL)", name="range"
    ),
    CheckConstraint("(kind = 'speaker') = (speaker IS NOT NULL)", name="speaker"),
    CheckConstraint("(lifted_at IS NULL) = (lifted_by IS NULL)", name="lifted"),
    Index("ix_closures_job_id", "job_id"),
    partial_index("ix_closures_project", "project", where="lifted_at IS NULL"),
)

openings = table_of(
    "openings",
    Opening,
    ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
    Index("ix_openings_job_id_at", "job_id", "at"),
)

not_private = table_of(
    "not_private",
    NotPrivate,
    ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
    Index("ix_not_private_job_id", "job_id"),
    key=("recording", "text_sha256"),
)
