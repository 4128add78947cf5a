"""Events: the inbox that commits write to, and the log in order of visibility."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Integer,
    String,
    Table,
)

from spool.tables.base import ID, NAME, UtcDateTime, metadata, partial_index

_COUNT = BigInteger().with_variant(Integer, "sqlite")

# Written in the commit of the change. Its ids are assigned before commits and so may become visible out of
# order; one process at a time moves rows to `events` under the next number.
event_inbox = Table(
    "event_inbox",
    metadata,
    Column("id", _COUNT, primary_key=True, autoincrement=True),
    Column("at", UtcDateTime, nullable=False),
    Column("type", String(32), nullable=False),
    Column("project", NAME, nullable=False),
    # No foreign keys: events outlive their jobs.
    Column("job_id", ID),
    Column("batch_id", ID),
    Column("custom_id", String(200)),
    Column("data", JSON, nullable=False),
)

events = Table(
    "events",
    metadata,
    # A reader that has seen a number has missed none below it.
    Column("id", _COUNT, primary_key=True, autoincrement=False),
    Column("at", UtcDateTime, nullable=False),
    Column("type", String(32), nullable=False),
    Column("project", NAME, nullable=False),
    Column("job_id", ID),
    Column("batch_id", ID),
    Column("custom_id", String(200)),
    Column("data", JSON, nullable=False),
    partial_index(
        "ix_events_job_id_id",
        "job_id",
        "id",
        where="job_id IS NOT NULL",
    ),
    partial_index(
        "ix_events_batch_id_id",
        "batch_id",
        "id",
        where="batch_id IS NOT NULL",
    ),
)

# The last number of the log, which outlives its rows. The process that numbers holds this row's lock until
# the commit.
event_position = Table(
    "event_position",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
