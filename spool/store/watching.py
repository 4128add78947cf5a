"""The fleet as a monitor sees it, and the last results of audits.

A worker is known by its name and pool, whatever process bears them just now: what its processes counted is
summed, so that a count never falls when one ends and another begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from sqlalchemy import Connection, insert, select

from spool.clock import now_utc, seconds_from_now
from spool.ids import new_id
from spool.store.workers import Worker, workers_named
from spool.tables import audits, workers
from spool.work_counts import WorkCounts

FORGOTTEN_SECONDS = 7 * 24 * 3600.0
"""So long a worker that died is missed; after that nobody expects it any more."""


@dataclass(frozen=True, slots=True)
class Member:
    """A worker of the fleet: its present (or last) process, and what all its processes came to."""

    worker: Worker
    engine_busy_ns: int
    counts: WorkCounts


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit found: breaches by rule (all rules, zeros too), and what it looked at."""

    breaches: Mapping[str, int]
    looked_at: Mapping[str, int]
    objects: bool
    """Whether it looked at the object store as well."""
    version: str
    ended_at: datetime | None = None
    """The database's time, once kept."""


def fleet(tx: Connection) -> tuple[Member, ...]:
    """Everybody who works here or is missed; not who stopped in good order."""
    recent = (
        select(workers.c.name)
        .where(workers.c.stopped_at.is_(None), workers.c.seen_at > seconds_from_now(-FORGOTTEN_SECONDS))
        .distinct()
    )
    members = []
    rows = sorted(workers_named(tx, recent), key=lambda one: (one.info.name, one.info.pool))
    for _, group in groupby(rows, key=lambda one: (one.info.name, one.info.pool)):
        processes = list(group)
        present = max(processes, key=lambda one: (one.alive, one.started_at, one.info.id))
        if present.stopped_at is None:
            counts = sum((one.counts for one in processes), WorkCounts())
            members.append(Member(present, sum(one.engine_busy_ns for one in processes), counts))
    return tuple(members)


def keep_audit(tx: Connection, audited: Audited) -> None:
    """Note the result of an audit, now."""
    tx.execute(
        insert(audits).values(
            id=new_id("aud"),
            ended_at=now_utc(),
            objects=audited.objects,
            looked_at=dict(audited.looked_at),
            breaches=dict(audited.breaches),
            version=audited.version,
        )
    )


def last_audit(tx: Connection) -> Audited | None:
    """The latest result; None where nobody ever audited."""
    row = tx.execute(select(audits).order_by(audits.c.ended_at.desc(), audits.c.id.desc()).limit(1)).first()
    if row is None:
        return None
    return Audited(row.breaches, row.looked_at, row.objects, row.version, row.ended_at)
