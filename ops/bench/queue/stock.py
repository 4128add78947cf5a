"""A PostgreSQL with many rows, filled once in a folder and used again: what the benches of the API stand on.

    python -m ops.bench.queue.stock --folder DIR --rows 1000000

Unlike the tests' clusters this one waits for the disk at each commit, as one in production does. Its rows
honour every constraint: jobs in all states over the last 30 days, of 20 projects, 30 keys, 200 batches and 50
workers, with two tags each, and as many cost lines as jobs. Knows the tables; measures nothing.
"""

import argparse
import contextlib
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

import migrations
from ops.testbed.postgres import PostgresServer

DATABASE = "stock"
DURABLE = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
}
QUEUED, RUNNING = 0.02, 0.0001

# Digits of hexadecimal are digits of an id; what ULIDs have in common, they have too: later ids are greater.
_ID = "'{0}_01' || upper(lpad(to_hex({1}), 10, '0') || substr(md5('{0}' || {1}), 1, 14))"
_WHEN = "date_trunc('day', now()) - interval '30 days' + interval '30 days' * (n::float8 / {rows})"

_FILL = (
    """INSERT INTO workers (id, name, pool, host, chip, version, pid, models,
         price_per_hour_micros, concurrency, state, started_at, seen_at, stopped_at)
       SELECT {worker}, 'mini-' || n, 'pool' || n % 3, 'rack', 'm4', '1', n, '["demo-tdt"]',
         100000, 8, 'stopped', now() - interval '31 days', now(), now() FROM generate_series(1, 50) n""",
    """INSERT INTO api_keys (id, name, project, scopes, sha256, created_at)
       SELECT {key}, 'key ' || n, 'project' || n % 20, '["read"]', md5(n::text) || md5(n::text), now()
       FROM generate_series(1, 30) n""",
    """INSERT INTO batches (id, project, name, source, reuse, accepted, lines, bad_lines, skipped_files,
         request_hash, created_at, updated_at, closed_at)
       SELECT {batch}, 'project' || n % 20, 'batch ' || n, 'manifest', false, 0, 0, '[]', '[]',
         md5(n::text), now(), now(), now() FROM generate_series(1, 200) n""",
    """INSERT INTO jobs (id, project, state, name, source_kind, source_uri, options, pool, queue, attempt,
         lease_owner, lease_until, audio_seconds, done_seconds, created_at, queued_at, hinted_at,
         started_at, finished_at, updated_at, error_code, error_message, transcript_key,
         transcript_sha256, coverage, words, batch_id, batch_line, custom_id, tags, key_id)
       SELECT {job}, 'project' || n % 20, state, 'reel-' || n || '.flac', 's3',
         's3://archive/1974/reel-' || n,
         '{{"model":"demo-tdt","decoder":"greedy","beam":4,"channels":"mix","boost":null,"nbest":1}}',
         'pool' || n % 3, 'spool.pool' || n % 3, CASE WHEN state IN ('queued', 'cancelled') THEN 0 ELSE 1 END,
         CASE state WHEN 'running' THEN 'wrk_nobody' END,
         CASE state WHEN 'running' THEN now() + interval '1000 days' END,
         CASE state WHEN 'done' THEN 300 END, CASE state WHEN 'done' THEN 300 ELSE 0 END, at, at,
         now() + interval '1 day',
         CASE WHEN state IN ('done', 'failed', 'running') THEN at END,
         CASE WHEN state IN ('done', 'failed', 'cancelled') THEN at END, at,
         CASE state WHEN 'failed' THEN 'audio_unreadable' END, CASE state WHEN 'failed' THEN 'No sound.' END,
         CASE state WHEN 'done' THEN 'jobs/' || n || '/attempt-1/transcript.json' END,
         CASE state WHEN 'done' THEN md5(n::text) || md5(n::text) END,
         CASE state WHEN 'done' THEN 1.0 END, CASE state WHEN 'done' THEN 700 END,
         CASE WHEN n % 5 < 3 THEN {batch_of} END, CASE WHEN n % 5 < 3 THEN n END,
         CASE WHEN n % 5 < 3 THEN 'reel-' || n END,
         {tags}, {key_of}
       FROM (SELECT n, {when} AS at, CASE WHEN n > {rows} * {running_from} THEN 'running'
                WHEN n > {rows} * {queued_from} THEN 'queued' WHEN n % 100 < 3 THEN 'failed'
                WHEN n % 100 = 3 THEN 'cancelled' ELSE 'done' END AS state
             FROM generate_series(1, {rows}) n) one""",
    """INSERT INTO cost_lines (job_id, attempt, worker_id, day, price_per_hour_micros, wasted, model, pool,
         project, engine_ns, audio_samples, cost_nanos, updated_at, key_id, batch_id, tags)
       SELECT {job}, 1, {worker_of}, (at AT TIME ZONE 'UTC')::date, 100000, n % 50 = 0, 'model' || n % 4,
         'pool' || n % 3, 'project' || n % 20, 3000000000 + n, CASE WHEN n % 50 = 0 THEN 0 ELSE 4800000 END,
         83333, at, {key_of}, CASE WHEN n % 5 < 3 THEN {batch_of} END, {tags}
       FROM (SELECT n, {when} AS at FROM generate_series(1, {rows}) n) one""",
)


def job_id(number: int) -> str:
    """The id of the job of this number, from 1."""
    return _id("job", number)


def batch_id(number: int) -> str:
    """The id of the batch of this number, from 1 to 200."""
    return _id("bat", number)


def _id(prefix: str, number: int) -> str:
    digest = hashlib.md5(f"{prefix}{number}".encode(), usedforsecurity=False).hexdigest()
    return f"{prefix}_01{f'{number:010x}{digest[:14]}'.upper()}"


def fill(connection: psycopg.Connection, rows: int) -> None:
    """Write everything, and let PostgreSQL look at it."""
    names = {
        "rows": str(rows),
        "job": _ID.format("job", "n"),
        "batch": _ID.format("bat", "n"),
        "key": _ID.format("key", "n"),
        "worker": _ID.format("wrk", "n"),
        "batch_of": _ID.format("bat", "(n % 200 + 1)"),
        "key_of": _ID.format("key", "(n % 30 + 1)"),
        "worker_of": _ID.format("wrk", "(n % 50 + 1)"),
        "tags": "json_build_object('client', 'client' || n % 50, 'box', 'box' || n % 1000)",
        "when": _WHEN.format(rows=rows),
        "queued_from": str(1 - QUEUED),
        "running_from": str(1 - RUNNING),
    }
    connection.execute("SET timezone = 'UTC'")
    for statement in _FILL:
        connection.execute(statement.format(**names).encode())
    connection.execute("VACUUM ANALYZE")


@contextlib.contextmanager
def stocked(folder: Path, rows: int, **settings: str) -> Iterator[tuple[PostgresServer, str]]:
    """The server and the URL of a database with so many jobs; filled if it is not yet."""
    server = PostgresServer(folder=folder, settings=DURABLE | settings)
    name = f"{DATABASE}_{rows}"
    try:
        server.start()
        with server.admin() as admin:
            known = admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
        if known is None:
            url = server.create_database(name)
            migrations.upgrade(url)
            with server.connect(name) as connection:
                fill(connection, rows)
        migrations.upgrade(server.url(name))
        yield server, server.url(name)
    finally:
        server.close()


def main() -> None:
    """Fill, and say how long that took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    began = time.monotonic()
    with stocked(arguments.folder, arguments.rows) as (_, url):
        print(f"{url} after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
