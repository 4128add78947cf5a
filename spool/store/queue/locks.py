"""Named locks with an expiry, for work that one process at a time should do."""

from sqlalchemy import Connection, delete, or_, select

from spool.store.sql import now_utc, seconds_from_now, upsert
from spool.tables import locks

SWEEP_LOCK = "sweep"
"""Held by the process that sweeps."""


def try_lock(tx: Connection, name: str, owner: str, seconds: float) -> bool:
    """Take or keep the named lock for `seconds`; False while another owner holds it."""
    # Read first: if all processes tried to write, they would queue for the row and for the disk.
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
    """Release the lock, if `owner` holds it."""
    tx.execute(delete(locks).where(locks.c.name == name, locks.c.owner == owner))
