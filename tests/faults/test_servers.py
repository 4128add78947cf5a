"""Broker and database lost, emptied, frozen, restarted, cut off and locked in the middle of jobs."""

import signal
import sqlite3
import tempfile
import time
from pathlib import Path

import pytest

from ops.soak.half_open import HalfOpenProxy
from ops.testbed.postgres import PostgresServer
from ops.testbed.stack import Stack, in_the_middle, until
from spool.broker import EmbeddedRedis, queue_depth
from spool.broker.celery_app import celery_app
from spool.domain import queue_name

long = pytest.mark.long


@long
def test_redis_emptied(stack: Stack) -> None:
    stack.worker()
    with stack.fault("FLUSHALL, with jobs running and jobs waiting") as fault:
        fault.jobs = in_the_middle(stack)
        fault.jobs += [stack.submit_stored(stack.record(30)) for _ in range(10)]
        with stack.redis.client() as client:
            client.flushall()
        fault.injected = time.monotonic()
    stack.assert_done(fault.jobs)
    assert fault.repeated == 0


def test_redis_killed_and_restarted(stack: Stack) -> None:
    stack.worker()
    with stack.fault("kill -9 of Redis, restarted from its file a second later") as fault:
        fault.jobs = in_the_middle(stack)
        stack.redis.kill()
        fault.injected = time.monotonic()
        fault.jobs.append(stack.submit_stored(stack.record(30)))
        time.sleep(1.0)
        stack.redis.start()
    stack.assert_done(fault.jobs)
    assert fault.repeated == 0


@long
def test_what_waits_in_redis_is_in_its_file(stack: Stack) -> None:
    stack.stop_workers()
    stack.serve()  # relays; the worker comes later
    with stack.redis.client() as client:
        client.flushall()
    queue = queue_name(stack.settings.pool)
    with stack.fault("kill -9 of Redis with 6 messages waiting, restarted from its file (AOF)") as fault:
        fault.jobs = [stack.submit_stored(stack.record(10)) for _ in range(6)]
        app = celery_app(stack.settings)
        until(lambda: queue_depth(app, queue) == len(fault.jobs), "all messages wait")
        stack.redis.kill()
        fault.injected = time.monotonic()
        stack.redis.start()
        with stack.redis.client() as client:
            kept = int(client.llen(queue))
        app.close()
        fault.note = f"{kept} messages were back"
        stack.worker(SPOOL_LEASE_SECONDS="60")
    assert kept == len(fault.jobs)
    stack.assert_done(fault.jobs)
    assert {stack.job(job_id).attempt for job_id in fault.jobs} == {1}
    assert fault.repeated == 0
    stack.stop_apis()
    stack.stop_workers()


@long
def test_redis_frozen(stack: Stack) -> None:
    stack.worker()
    with stack.fault("Redis stopped for 15 s (its sockets stay open and silent)") as fault:
        fault.jobs = in_the_middle(stack)
        process = stack.redis.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        fault.injected = time.monotonic()
        fault.jobs.append(stack.submit_stored(stack.record(30)))
        time.sleep(15.0)
        process.send_signal(signal.SIGCONT)
    stack.assert_done(fault.jobs)
    assert fault.repeated == 0


def test_postgresql_crashes_and_restarts(stack: Stack, postgres: PostgresServer) -> None:
    stack.worker()
    with stack.fault("PostgreSQL stopped without warning and restarted") as fault:
        fault.jobs = in_the_middle(stack)
        postgres.stop(abruptly=True)
        fault.injected = time.monotonic()
        postgres.start()
    stack.assert_done(fault.jobs)
    assert fault.repeated == 0, "what came back meanwhile was saved later"


def test_connections_cut_in_mid_transaction(stack: Stack, postgres: PostgresServer) -> None:
    stack.worker()
    cut = 0
    with stack.fault("every PostgreSQL connection cut, ten times") as fault:
        fault.jobs = in_the_middle(stack)
        fault.injected = time.monotonic()
        with postgres.admin() as connection:
            for _ in range(10):
                (ended,) = connection.execute(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE datname = 'spool-test-servers'"
                ).fetchall()
                cut += ended[0]
                time.sleep(0.15)
        fault.note = f"{cut} connections"
    assert cut >= 10
    stack.assert_done(fault.jobs)
    # A busy machine may not get a chunk saved within a lease; then that one is decoded again.
    assert fault.repeated <= len(fault.jobs)


@long
def test_sqlite_locked_by_another_process(embedded: Stack) -> None:
    embedded.worker()
    with embedded.fault("SQLite locked by another process for 6 s, longer than a lease") as fault:
        fault.jobs = in_the_middle(embedded)
        other = sqlite3.connect(embedded.home / "spool.db", isolation_level=None, timeout=60)
        other.execute("BEGIN IMMEDIATE")
        fault.injected = time.monotonic()
        time.sleep(6.0)
        other.execute("ROLLBACK")
        other.close()
    embedded.assert_done(fault.jobs)
    assert max(embedded.job(job_id).attempt for job_id in fault.jobs) <= 2
    embedded.stop_workers()
    assert embedded.audit().clean


def test_at_the_end_bills_and_engines_agree(stack: Stack) -> None:
    stack.stop_workers()
    report = stack.audit()
    assert report.clean, report.breaches
    assert {worker.state for worker in stack.workers()} == {"stopped"}


@long
@pytest.mark.timeout(900)
def test_a_half_open_broker(broker: EmbeddedRedis, tmp_path: Path, sqlite_url: str) -> None:
    with tempfile.TemporaryDirectory(prefix="spool-") as short:
        proxy = HalfOpenProxy(Path(short) / "redis.sock", broker.socket)
        stack = Stack(tmp_path, sqlite_url, broker, SPOOL_REDIS_URL=proxy.url)
        stack.worker()
        with stack.fault("a minute of half-open connections to Redis") as fault:
            fault.jobs = in_the_middle(stack)
            proxy.swallow()
            fault.jobs += [stack.submit_stored(stack.record(30)) for _ in range(3)]
            time.sleep(60.0)
            proxy.restore()
            fault.injected = time.monotonic()
            fault.note = "counted from the end of the minute"
            until(lambda: stack.ended(fault.jobs), "recovery")
        stack.assert_done(fault.jobs)
        assert fault.repeated == 0
        assert proxy.swallowed
        stack.stop_workers()
        assert stack.audit().clean
        stack.close()
        proxy.close()
