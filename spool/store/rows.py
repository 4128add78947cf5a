"""The row of a job as a `Job`, and the SQL that every change of a job's state shares.

States the legal moves in SQL. Its only queries find jobs, and write the outbox lines that belong to a change.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, insert, select, update

from spool.domain.fleet.routing import route_of
from spool.domain.jobs import MOVES, Job, JobState
from spool.store.sql import now_utc, seconds_from_now
from spool.tables import jobs, outbox
from spool.tables.record import columns_of, reader_of

JOB_COLUMNS = tuple(jobs.c[column.name] for column in columns_of(Job))
CHANGED_JOB = update(jobs).returning(*JOB_COLUMNS)
"""Built once: naming all columns takes longer than running it."""


job_of = reader_of(Job)
"""The Job of a row with the columns `JOB_COLUMNS`."""


def find_jobs(tx: Connection, ids: Collection[str]) -> dict[str, Job]:
    """Those of these jobs that exist, by id."""
    rows = tx.execute(select(*JOB_COLUMNS).where(jobs.c.id.in_(ids))) if ids else ()
    return {job.id: job for job in map(job_of, rows)}


def may_become(state: JobState) -> ColumnElement[bool]:
    """SQL: the job is in a state from which `MOVES` allows `state`. Part of every UPDATE that sets it."""
    return jobs.c.state.in_([old.value for old, new in sorted(MOVES) if new is state])


def add_hints(tx: Connection, targets: Sequence[tuple[str, str]], delay: float = 0.0) -> None:
    """Write one outbox line for each (job id, queue), due `delay` seconds from now. Live sessions have no
    messages: workers look for them."""
    targets = [target for target in targets if not route_of(target[1]).live]
    if not targets:
        return
    due = seconds_from_now(delay) if delay > 0 else now_utc()
    lines = [{"job_id": job, "queue": queue} for job, queue in targets]
    tx.execute(insert(outbox).values(due_at=due), lines)
