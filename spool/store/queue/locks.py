"""Messages still to be sent, and the sweep that makes losing them harmless (law 1).

An outbox row is a promise to put a job's id into Redis; it is deleted when that is done. `sweep` finds what
Redis forgot: leases that ran out, and queued jobs of which no message was sent for a while. Knows nothing of
Redis.
"""

from sqlalchemy import Connection, delete, or_, select

from spool.store.sql import now_utc, seconds_from_now, upsert
from spool.tables import locks

SWEEP_LOCK = "sweep"
"""Held by the process that sweeps."""


def try_lock(tx: Connection, name: str, owner: str, seconds: float) -> bool:
    """Take or keep the named lock for `seconds`; False while another owner holds it."""
    # A look first: to try to write, all of a fleet would queue for the row and wait for a disk each.
    taken = select(locks.c.name).where(
        locks.c.name == name, locks.c.owner != owner, locks.c.held_until >= now_utc()
    )
    if tx.execute(taken).one_or_none() is not None:
        return False
    holder = {"owner": owner, "held_until": seconds_from_now(seconds)}
    free = or_(locks.c.owner == owner, locks.c.held_until < now_utc())
    written = upsert(
        tx, locks, {"name": name, **holder}, update=holder, where=free, returning=[locks.c.owner]
    )
    return written.one_or_none() is not None


def unlock(tx: Connection, name: str, owner: str) -> None:
    """Give the lock up, if `owner` holds it."""
    tx.execute(delete(locks).where(locks.c.name == name, locks.c.owner == owner))
