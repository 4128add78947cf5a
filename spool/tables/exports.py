"""External object stores: named connections, and a row for each job and format that is exported."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, Index, Table, Text

from spool.domain.columns import Id, Length, Name, Sha256, ShortName
from spool.errors import SourceForbidden
from spool.tables.base import UtcDateTime, job_key, metadata, partial_index
from spool.tables.record import table_of

Access = Literal["read", "write", "both"]


@dataclass(frozen=True)
class NewConnection:
    """A connection to be created; everything that is read or written with it lies below `prefix`."""

    project: Name
    name: ShortName
    endpoint: str | None
    region: ShortName
    prefix: str
    key_id: str
    secret: str = field(repr=False)
    access: Access = "write"


@dataclass(frozen=True, kw_only=True)
class ConnectionRow(NewConnection):
    """A connection as its row was read; its secret is encrypted (`spool.settings.secret_key`)."""

    created_at: datetime

    def check_write(self, uri: str) -> None:
        """Raise SourceForbidden if the connection may not write to `uri`, an address or a prefix."""
        if self.access == "read":
            raise SourceForbidden(
                f"The connection {self.name} only reads; have an operator create one with the access `write`."
            )
        if not uri.startswith(self.prefix):
            raise SourceForbidden(f"The connection {self.name} writes below {self.prefix} only.")

    def check_read(self, uri: str) -> None:
        """Raise SourceForbidden if the connection may not read what lies at `uri`."""
        if self.access == "write":
            raise SourceForbidden(
                f"The connection {self.name} only writes; have an operator create one with the access `read`."
            )
        if not uri.startswith(self.prefix):
            raise SourceForbidden(f"The connection {self.name} reads below {self.prefix} only.")


# Credentials of external object stores. Jobs name a connection, and never contain its values.
connections = table_of(
    "connections",
    ConnectionRow,
    CheckConstraint("access IN ('read', 'write', 'both')", name="access"),
    key=("project", "name"),
)

# Where workers, which cannot read those credentials, request a signed address of a job's source. A row lives
# from the request until the worker has taken the answer.
source_links = Table(
    "source_links",
    metadata,
    job_key(),
    # The signed address, or why there is none.
    Column("url", Text),
    Column("error", Text),
    # Until when the address is valid, or the request worth answering.
    Column("expires_at", UtcDateTime, nullable=False),
    CheckConstraint("url IS NULL OR error IS NULL", name="answer"),
)

ExportState = Literal["pending", "written", "failed", "replaced"]


@dataclass(frozen=True, kw_only=True)
class Export:
    """One file of one job, as its row was read."""

    job_id: Id
    format: Annotated[str, Length(16)]
    project: Name
    destination: Name
    state: ExportState
    revision: int = 1
    """Grows when the transcript changes."""
    tries: int = 0
    due_at: datetime
    error: str | None
    uri: str | None
    target: Sha256 | None
    sha256: Sha256 | None
    created_at: datetime
    written_at: datetime | None

    @property
    def next_try_at(self) -> datetime | None:
        """When it is written, if it still is to be."""
        return self.due_at if self.state == "pending" else None


exports = table_of(
    "exports",
    Export,
    ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
    CheckConstraint("state IN ('pending', 'written', 'failed', 'replaced')", name="state"),
    CheckConstraint("state NOT IN ('failed', 'replaced') OR error IS NOT NULL", name="reason"),
    CheckConstraint("state <> 'written' OR (uri IS NOT NULL AND sha256 IS NOT NULL)", name="written"),
    partial_index("ix_exports_pending", "due_at", where="state = 'pending'"),
    Index("ix_exports_target", "target", unique=True),
    key=("job_id", "format"),
)
