"""Who waits for the locks of a frozen connection, as PostgreSQL says: however slow this machine is."""

from sqlalchemy import text

from spool.store import Database

BLOCKED_SECONDS = 0.5
"""How long others may be held up: longer than the waits that they cut short themselves (`try_lock`), and much
shorter than the frozen process holds its locks."""
_HELD_UP = text(
    "SELECT query FROM pg_stat_activity WHERE :frozen = ANY (pg_blocking_pids(pid))"
    " AND clock_timestamp() - query_start > make_interval(secs => :longer_than)"
)


def held_up(observer: Database, frozen: int) -> set[str]:
    """The statements that have waited too long for this backend."""
    with observer.read() as tx:
        return set(tx.scalars(_HELD_UP, {"frozen": frozen, "longer_than": BLOCKED_SECONDS}))
