"""What the choice of the next job costs against the length of the queue, and how soon a high one starts.

    python -m ops.bench.queue.order --rows 1000 10000 100000 1000000 [--sqlite] [--explain] [--overtake
    100000]

For each number of rows: that many low jobs, half of one project and half of `--others`, are written straight
into the table (with their messages still to be sent), then claims are made one after another, each in its own
transaction, and what the relay and a sweep ask is timed too; with the processor time of this process beside
it. `--overtake` starts a real worker (a model without weights) over that many low jobs, and submits ten high
ones, one after another, while it works. PostgreSQL is of the tests' kind, which does not wait for the disk.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

import migrations
from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.postgres import PostgresServer
from ops.testbed.processes import Fleet
from ops.testbed.waiting import until
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.domain.jobs import JobState, Source
from spool.domain.options import JobOptions
from spool.domain.priority import HIGH, LOW, Rules
from spool.store import Database
from spool.store.jobs import NewJob, create_job, get_job
from spool.store.queue.leases import Claim
from spool.store.queue.outbox import SweepLimits, due_hints, due_queues, sweep, unsent
from spool.store.queue.scheduler import ClaimRequest, claim_next, waiting_by_queue

_NUMBERS = {
    "postgresql": "SELECT generate_series(1, :rows) AS n",
    "sqlite": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < :rows)"
    " SELECT n FROM c",
}
_FILL = """
INSERT INTO jobs (id, project, state, name, source_kind, source_uri, options, pool, queue, priority,
                  queue_position, created_at, queued_at, updated_at)
SELECT 'job_' || n,
       CASE WHEN n % 2 = 0 OR {others} = 0 THEN 'archive' ELSE 'p' || (n / 2 % {mod}) END,
       'queued', 'a.wav', 'file', :uri, :options, 'cpu', 'spool.cpu', {low}, {place} + n, {now}, {now}, {now}
FROM ({numbers}) AS numbers
"""


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--claims", type=int, default=200)
    parser.add_argument("--others", type=int, default=50, help="projects that have the other half")
    parser.add_argument("--sqlite", action="store_true")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--overtake", type=int, default=0)
    arguments = parser.parse_args()
    results: dict[str, object] = {}
    for rows in arguments.rows:
        with database(sqlite=arguments.sqlite) as db:
            results[f"{rows} waiting"] = costs(
                db, rows, arguments.others, arguments.claims, explain=arguments.explain
            )
    if arguments.overtake:
        with database(sqlite=arguments.sqlite) as db:
            results[f"high behind {arguments.overtake} low"] = overtaken(
                db, arguments.overtake, arguments.others
            )
    print(json.dumps(results, indent=2))


@contextmanager
def database(*, sqlite: bool) -> Iterator[Database]:
    """A migrated, empty database of its own."""
    folder, server = Path(tempfile.mkdtemp(prefix="spool-bench-")), None if sqlite else PostgresServer()
    try:
        url = f"sqlite:///{folder / 'spool.db'}"
        if server is not None:
            server.start()
            url = server.create_database("bench")
        migrations.upgrade(url)
        db = Database(url)
        yield db
        db.close()
    finally:
        if server is not None:
            server.close()
        shutil.rmtree(folder, ignore_errors=True)


def fill(
    db: Database, rows: int, others: int, uri: str = "file:///a.wav", options: JobOptions | None = None
) -> None:
    """So many low jobs and their messages, as if they had been submitted a moment ago."""
    postgresql = db.dialect == "postgresql"
    now = "now()" if postgresql else "strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'"
    statement = _FILL.format(
        others=others,
        mod=max(others, 1),
        low=LOW,
        place=int(time.time() * 1e6),
        now=now,
        numbers=_NUMBERS[db.dialect],
    )
    options_json = (options or JobOptions(model="demo-tdt")).model_dump_json()
    if postgresql:
        statement = statement.replace(":options", "CAST(:options AS json)")
    with db.begin() as tx:
        if postgresql:
            tx.execute(text("SET LOCAL statement_timeout = 0"))
        tx.execute(text(statement), {"rows": rows, "uri": uri, "options": options_json})
        tx.execute(
            text(f"INSERT INTO outbox (job_id, queue, due_at) SELECT id, 'spool.cpu', {now} FROM jobs")
        )
    with db.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("ANALYZE")


def costs(db: Database, rows: int, others: int, claims: int, *, explain: bool) -> dict[str, object]:
    """Milliseconds of a claim and of what relay and sweep ask."""
    fill(db, rows, others)
    request = ClaimRequest("wrk_1", "cpu", "mini", 60.0, alone=False)
    projects = []

    def claim() -> None:
        with db.begin() as tx:
            one = claim_next(tx, request, Rules())
        assert isinstance(one, Claim)
        projects.append(one.job.project)

    def swept() -> None:
        with db.begin() as tx:
            waiting = waiting_by_queue(tx, Rules(), 1000)
            sweep(tx, SweepLimits(room={q: n - unsent(tx, q, 1000) for q, n in waiting.items()}))

    def relayed() -> None:
        with db.begin() as tx:
            due_queues(tx)
            due_hints(tx, 100, "spool.cpu")

    for _ in range(20):
        claim()
    busy = time.process_time()
    timed = sorted(milliseconds(claim) for _ in range(min(claims, rows // 4)))
    busy = (time.process_time() - busy) / len(timed)
    answer: dict[str, object] = {
        "claim, median ms": round(statistics.median(timed), 2),
        "claim, p99 ms": round(timed[int(len(timed) * 0.99) - 1], 2),
        "claim, processor ms of the client": round(busy * 1000, 2),
        "relay, ms": round(statistics.median(milliseconds(relayed) for _ in range(5)), 2),
        "sweep, ms": round(statistics.median(milliseconds(swept) for _ in range(5)), 2),
        "share of the project with half of the jobs": round(projects.count("archive") / len(projects), 3),
    }
    if explain:
        answer["plan"] = plan(db)
    return answer


def plan(db: Database) -> list[str]:
    """How the database finds the front of a project's queue."""
    asked = (
        "SELECT id FROM jobs WHERE state = 'queued' AND pool = 'cpu' AND worker IS NULL"
        " AND project = 'archive' AND (not_before IS NULL OR not_before <= CURRENT_TIMESTAMP)"
        " ORDER BY worker, priority, deadline_rank, queue_position, id LIMIT 1"
    )
    with db.read() as tx:
        words = "EXPLAIN (ANALYZE, BUFFERS) " if db.dialect == "postgresql" else "EXPLAIN QUERY PLAN "
        return [str(row[-1]) for row in tx.execute(text(words + asked))]


def overtaken(db: Database, rows: int, others: int) -> dict[str, object]:
    """Seconds from the commit of a high job to its claim by a worker whose threads are all busy."""
    folder, home = Path(tempfile.mkdtemp(prefix="spool-bench-")), temporary_home()
    path = write_wav(folder / "a.wav", speechlike(2))
    url = db.engine.url.render_as_string(hide_password=False)
    with EmbeddedRedis(home) as redis:
        fill(db, rows, others, path.as_uri(), JobOptions(model="plain"))
        fleet = Fleet(folder, url, redis.url, SPOOL_MODELS="plain=plain", SPOOL_DEFAULT_MODEL="plain")
        try:
            fleet.start()
            until(lambda: ended(db) >= 100, "a hundred jobs done", 300)
            begun, before = time.monotonic(), ended(db)
            waits = []
            for _ in range(10):
                source = Source("file", path.as_uri(), path.stat().st_size)
                new = NewJob(source, JobOptions(model="plain"), "high.wav", project="archive", priority=HIGH)
                with db.begin() as tx:
                    job = create_job(tx, new)[0]
                until(lambda: state(db, job.id) is not JobState.QUEUED, "the high job started", 300)  # noqa: B023
                with db.read() as tx:
                    started = get_job(tx, job.id).started_at
                assert started is not None
                waits.append((started - job.created_at).total_seconds())
            rate = (ended(db) - before) / (time.monotonic() - begun)
        finally:
            fleet.close()
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(home, ignore_errors=True)
    return {
        "submit to start, median s": round(statistics.median(waits), 3),
        "submit to start, each s": [round(wait, 3) for wait in waits],
        "jobs a second meanwhile": round(rate, 1),
    }


def ended(db: Database) -> int:
    """Jobs done so far."""
    with db.read() as tx:
        return int(tx.execute(text("SELECT count(*) FROM jobs WHERE state = 'done'")).scalar_one())


def state(db: Database, job_id: str) -> JobState:
    """The job's state now."""
    with db.read() as tx:
        return get_job(tx, job_id).state


def milliseconds(call: Callable[[], object]) -> float:
    """How long the call takes."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1000


if __name__ == "__main__":
    main()
