"""Idempotency keys: the first request under a key is kept, and a repeat of it is known as one.

A key belongs to a project, and stands beside the SHA-256 of what was asked under it. Knows no request.
"""

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from spool.clock import now_utc
from spool.errors import Conflict
from spool.tables import idempotency


def job_of_key(tx: Connection, project: str, key: str, request_hash: str) -> str | None:
    """The id of the job that the key's first request was about. Raises Conflict for another request's key."""
    found = tx.execute(
        select(idempotency.c.job_id, idempotency.c.request_hash).where(
            idempotency.c.project == project, idempotency.c.key == key
        )
    ).one_or_none()
    if found is None:
        return None
    if found.request_hash != request_hash:
        raise Conflict(f"The idempotency key {key!r} was used for another request.")
    return str(found.job_id)


def keep_key(tx: Connection, project: str, key: str, request_hash: str, job_id: str) -> bool:
    """Keep the key; False when there is one already. Waits for a transaction that is writing the same."""
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    kept = tx.execute(
        build(idempotency)
        .values(project=project, key=key, request_hash=request_hash, job_id=job_id, created_at=now_utc())
        .on_conflict_do_nothing()
        .returning(idempotency.c.job_id)
    )
    return kept.one_or_none() is not None
