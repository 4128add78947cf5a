"""The queue, the relay and the sweeper on a real Redis or Valkey."""

import base64
import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from celery import Celery
from sqlalchemy import select, update
from structlog.testing import capture_logs

from ops.testbed.rows import claimed, let_lapse, new_job, queued, reread
from ops.testbed.waiting import until
from spool.background import Sweeper, relay_once, sweep_once
from spool.broker import TASK, EmbeddedRedis, queue_depth, send_hint, temporary_home
from spool.broker.celery_app import celery_app
from spool.domain import JobState, queue_name
from spool.errors import StorageError
from spool.settings import Settings
from spool.store import SWEEP_LOCK, Database, create_job, seconds_from_now, try_lock
from spool.tables import jobs, locks, outbox

QUEUE = "spool.cpu"
MakeSettings = Callable[..., Settings]


def messages(server: EmbeddedRedis, queue: str = QUEUE) -> list[str]:
    """The job ids in the queue, oldest first."""
    with server.client() as client:
        raw = client.lrange(queue, 0, -1)
    bodies = [json.loads(base64.b64decode(json.loads(one)["body"])) for one in reversed(raw)]
    return [arguments[0] for arguments, _, _ in bodies]


@pytest.fixture
def own_server() -> Iterator[EmbeddedRedis]:
    """A server that a test may kill."""
    home = temporary_home()
    server = EmbeddedRedis(home)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(home)


@pytest.fixture
def sweeping(db: Database, celery: Celery, make_settings: MakeSettings) -> Iterator[Sweeper]:
    sweeper = Sweeper(db, celery, make_settings(sweep_seconds=0.05, hint_stale_seconds=0.2))
    sweeper.start()
    yield sweeper
    sweeper.stop()
    assert not sweeper.is_alive()


def test_queues_have_names() -> None:
    assert queue_name("cpu") == "spool.cpu"
    assert queue_name("metal", "mini-3") == "spool.metal;at:mini-3"


def test_a_message_is_json_and_carries_the_id_alone(celery: Celery, redis_server: EmbeddedRedis) -> None:
    send_hint(celery, "job_x", QUEUE)

    with redis_server.client() as client:
        (raw,) = client.lrange(QUEUE, 0, -1)
    message = json.loads(raw)
    assert message["content-type"] == "application/json"
    assert message["headers"]["task"] == TASK
    assert messages(redis_server) == ["job_x"]
    assert (queue_depth(celery, QUEUE), queue_depth(celery, "spool.none")) == (1, 0)


def test_the_application_trusts_the_broker_with_nothing(make_settings: MakeSettings) -> None:
    app = celery_app(make_settings(concurrency=3))

    assert app.conf.task_acks_late is False
    assert app.conf.worker_disable_prefetch is True
    assert app.conf.task_ignore_result is True
    assert app.conf.result_backend is None
    assert app.conf.broker_connection_max_retries is None
    assert app.conf.accept_content == ["json"]
    assert app.conf.broker_transport_options["socket_timeout"] == 10
    assert app.conf.broker_transport_options["socket_keepalive"] is True
    assert (app.conf.worker_pool, app.conf.worker_concurrency) == ("threads", 3)


def test_nothing_is_sent_before_its_row_is_committed(
    postgres_url: str, celery: Celery, redis_server: EmbeddedRedis
) -> None:
    db = Database(postgres_url)
    with db.begin() as tx:
        job, _ = create_job(tx, new_job())
        assert relay_once(db, celery) == 0
        assert messages(redis_server) == []

    assert relay_once(db, celery) == 1
    assert messages(redis_server) == [job.id]
    db.close()


def test_a_relay_empties_the_outbox_into_the_right_queues(
    db: Database, celery: Celery, redis_server: EmbeddedRedis
) -> None:
    plain = [queued(db).id for _ in range(3)]
    pinned = queued(db, pool="metal", worker="mini").id

    assert relay_once(db, celery) == 4
    assert messages(redis_server) == plain
    assert messages(redis_server, "spool.metal;at:mini") == [pinned]
    assert relay_once(db, celery) == 0
    with db.read() as tx:
        assert tx.execute(select(outbox)).all() == []
        assert None not in set(tx.scalars(select(jobs.c.hinted_at)))


def test_redis_holds_no_more_than_the_window(
    db: Database, celery: Celery, redis_server: EmbeddedRedis
) -> None:
    job_ids = [queued(db).id for _ in range(5)]

    assert relay_once(db, celery, window=3) == 3
    assert relay_once(db, celery, window=3) == 0
    with redis_server.client() as client:
        client.rpop(QUEUE)
    assert relay_once(db, celery, window=3) == 1
    assert messages(redis_server) == job_ids[1:4]
    assert relay_once(db, celery, limit=1) == 1


def test_two_relays_at_once_send_each_job_once(
    db: Database, celery: Celery, redis_server: EmbeddedRedis
) -> None:
    job_ids = [queued(db).id for _ in range(30)]
    start = threading.Barrier(3)

    def relay() -> None:
        start.wait()
        while relay_once(db, celery, limit=4):
            pass

    threads = [threading.Thread(target=relay) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(messages(redis_server)) == sorted(job_ids)


def test_without_redis_nothing_is_lost_and_nothing_hangs(
    db: Database, make_settings: MakeSettings, own_server: EmbeddedRedis
) -> None:
    app = celery_app(make_settings(redis_url=own_server.url))
    job_ids = [queued(db).id for _ in range(2)]
    own_server.kill()

    with pytest.raises(StorageError, match="Redis"):
        relay_once(db, app)
    with pytest.raises(StorageError, match="Redis"):
        send_hint(app, "job_x", QUEUE)
    with pytest.raises(StorageError, match="Redis"):
        queue_depth(app, QUEUE)
    own_server.start()

    assert relay_once(db, app) == 2
    assert messages(own_server) == job_ids
    app.close()


def test_a_sweeper_sends_what_it_is_woken_for(
    db: Database, celery: Celery, redis_server: EmbeddedRedis, make_settings: MakeSettings
) -> None:
    sweeper = Sweeper(db, celery, make_settings(sweep_seconds=3600.0))
    sweeper.start()
    until(lambda: _lock_owner(db) is not None)
    job = queued(db)
    sweeper.wake()
    until(lambda: messages(redis_server) == [job.id])
    sweeper.stop()
    assert not sweeper.is_alive()
    assert _lock_owner(db) is None, "the next sweeper need not wait"


def test_losing_all_of_redis_loses_no_job(
    db: Database, sweeping: Sweeper, redis_server: EmbeddedRedis
) -> None:
    # Given jobs whose messages are in Redis
    job_ids = {queued(db).id for _ in range(5)}
    sweeping.wake()
    until(lambda: set(messages(redis_server)) == job_ids)

    # When all of it is gone
    with redis_server.client() as client:
        client.flushall()

    # Then one sweep later they are there again, without anybody's help
    until(lambda: set(messages(redis_server)) == job_ids)


def test_a_long_queue_is_not_filled_with_repeats(
    db: Database, celery: Celery, redis_server: EmbeddedRedis, make_settings: MakeSettings
) -> None:
    settings = make_settings(hint_stale_seconds=0.001)
    job_ids = [queued(db).id for _ in range(4)]
    relay_once(db, celery)
    with db.begin() as tx:
        tx.execute(update(jobs).values(hinted_at=seconds_from_now(-3600)))

    report = sweep_once(db, celery, settings, "swp_a")
    assert report is not None
    assert report.rehinted == (), "every message is still there"

    with redis_server.client() as client:
        client.rpop(QUEUE)
    report = sweep_once(db, celery, settings, "swp_a")
    assert report is not None
    assert len(report.rehinted) == 1, "one is missing"
    assert set(report.rehinted) <= set(job_ids)


def test_a_dead_workers_job_is_queued_and_sent(
    db: Database, sweeping: Sweeper, redis_server: EmbeddedRedis
) -> None:
    claim = claimed(db)
    with db.begin() as tx:
        tx.execute(outbox.delete())
    with redis_server.client() as client:
        client.flushall()
    let_lapse(db, claim.job.id)

    until(lambda: messages(redis_server) == [claim.job.id])

    job = reread(db, claim.job.id)
    assert (job.state, job.crashes) == (JobState.QUEUED, 1)
    assert sweeping.is_alive()


def test_only_the_holder_of_the_lock_sweeps(
    db: Database, celery: Celery, make_settings: MakeSettings
) -> None:
    settings = make_settings()
    assert sweep_once(db, celery, settings, "swp_a") is not None
    assert sweep_once(db, celery, settings, "swp_b") is None
    assert sweep_once(db, celery, settings, "swp_a") is not None


def failed(logs: Iterable[Mapping[str, object]]) -> bool:
    return any(entry["event"] == "spool-sweeper failed" for entry in logs)


def test_a_sweeper_outlives_an_outage_of_redis(
    sqlite_url: str, make_settings: MakeSettings, own_server: EmbeddedRedis
) -> None:
    db = Database(sqlite_url)
    app = celery_app(make_settings(redis_url=own_server.url))
    sweeper = Sweeper(db, app, make_settings(redis_url=own_server.url, sweep_seconds=0.05))
    sweeper.start()
    until(lambda: _lock_owner(db) is not None)
    own_server.kill()
    job = queued(db)
    with capture_logs() as logs:
        sweeper.wake()
        until(lambda: failed(logs), "a round that fails")
    assert sweeper.is_alive()

    own_server.start()
    until(lambda: messages(own_server) == [job.id])
    sweeper.stop()
    assert not sweeper.is_alive()
    app.close()
    db.close()


def test_a_sweeper_outlives_a_database_without_tables_and_stops_at_once(
    tmp_path: Path, celery: Celery, make_settings: MakeSettings
) -> None:
    db = Database(f"sqlite:///{tmp_path / 'empty.db'}")
    sweeper = Sweeper(db, celery, make_settings())
    with capture_logs() as logs:
        sweeper.start()
        until(lambda: failed(logs), "a round that fails")
    assert sweeper.is_alive()
    sweeper.stop()
    assert not sweeper.is_alive()
    db.close()


def _lock_owner(db: Database) -> str | None:
    with db.read() as tx:
        return tx.scalars(select(locks.c.owner).where(locks.c.name == SWEEP_LOCK)).one_or_none()


def test_a_lock_of_a_dead_sweeper_runs_out(db: Database, celery: Celery, make_settings: MakeSettings) -> None:
    with db.begin() as tx:
        assert try_lock(tx, SWEEP_LOCK, "swp_dead", -1)
    assert sweep_once(db, celery, make_settings(), "swp_heir") is not None
