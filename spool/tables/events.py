"""Events: the inbox that commits write to, and the log in order of visibility."""

from sqlalchemy import BigInteger, Column, Integer, Table

from spool.domain.events import NewEvent
from spool.tables.base import NAME, metadata, partial_index
from spool.tables.record import table_of

_NUMBER = BigInteger().with_variant(Integer, "sqlite")

# Written in the commit of the change. Its ids are assigned before commits and so may become visible out of
# order; one process at a time moves rows to `events` under the next number.
event_inbox = table_of(
    "event_inbox",
    NewEvent,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
)

events = table_of(
    "events",
    NewEvent,
    Column("id", _NUMBER, primary_key=True, autoincrement=False),
    partial_index("ix_events_job_id_id", "job_id", "id", where="job_id IS NOT NULL"),
    partial_index("ix_events_batch_id_id", "batch_id", "id", where="batch_id IS NOT NULL"),
)

# The last number of the log, which outlives its rows. The process that numbers holds this row's lock until
# the commit.
event_position = Table(
    "event_position",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
