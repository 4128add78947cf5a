"""Messages still to be sent, and the sweep that makes losing them harmless (law 1).

An outbox row is a promise to put a job's id into Redis; it is deleted when that is done. `sweep` finds what
Redis forgot: leases that ran out, and queued jobs of which no message was sent for a while. Knows nothing of
Redis.
"""

from sqlalchemy import Connection, delete, or_, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from spool.store.sql import now_utc, seconds_from_now
from spool.tables import locks


def try_lock(tx: Connection, name: str, owner: str, seconds: float) -> bool:
    """Take or keep the named lock for `seconds`; False while another owner holds it."""
    # A look first: to try to write, all of a fleet would queue for the row and wait for a disk each.
    taken = select(locks.c.name).where(
        locks.c.name == name, locks.c.owner != owner, locks.c.held_until >= now_utc()
    )
    if tx.execute(taken).one_or_none() is not None:
        return False
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    until = seconds_from_now(seconds)
    row = tx.execute(
        build(locks)
        .values(name=name, owner=owner, held_until=until)
        .on_conflict_do_update(
            index_elements=[locks.c.name],
            set_={"owner": owner, "held_until": until},
            where=or_(locks.c.owner == owner, locks.c.held_until < now_utc()),
        )
        .returning(locks.c.owner)
    ).one_or_none()
    return row is not None


def unlock(tx: Connection, name: str, owner: str) -> None:
    """Give the lock up, if `owner` holds it."""
    tx.execute(delete(locks).where(locks.c.name == name, locks.c.owner == owner))
