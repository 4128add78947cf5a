"""API keys, settings of the whole system, counters of rare events, and the results of audits."""

from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import JSON, BigInteger, Column, Index, Table

from spool.domain.api_keys import Scope
from spool.domain.columns import Id, Name, Sha256, ShortName
from spool.tables.base import ID, NAME, UtcDateTime, metadata
from spool.tables.record import table_of


@dataclass(frozen=True)
class ApiKeyRow:
    """The row of a key, which stays when the key is revoked: once a key exists, every request needs one."""

    id: Id
    name: Name
    project: Name | None
    """None: every project, for an admin key."""
    scopes: frozenset[Scope]
    sources: tuple[str, ...] | None
    """Prefixes of the addresses that its jobs may read; None: whatever the settings allow."""
    sha256: Sha256 = field(repr=False)
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


@dataclass(frozen=True)
class Audited:
    """An audit's result: violations by rule (all rules, zeros too), and how many rows and objects it read."""

    breaches: dict[str, int]
    looked_at: dict[str, int]
    objects: bool
    """Whether it read the object store too."""
    version: ShortName


@dataclass(frozen=True, kw_only=True)
class StoredAudit(Audited):
    """An audit as its row was read."""

    ended_at: datetime


api_keys = table_of("api_keys", ApiKeyRow)
audits = table_of(
    "audits",
    StoredAudit,
    Column("id", ID, primary_key=True),
    Index("ix_audits_ended_at", "ended_at"),
)

# Settings shared by all processes, which can change while they run.
system_settings = Table(
    "system_settings",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("value", JSON, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)

# Counters of rare events, which only grow: every writer locks the same row.
counters = Table(
    "counters",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("label", NAME, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
