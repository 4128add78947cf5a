"""Celery's own tools show which job a task is doing, also where it took another than its message named."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import Fleet, drained
from ops.testbed.waiting import until
from spool.broker.celery_app import celery_app
from spool.domain import HIGH, JobOptions, Source
from spool.store import NewJob, create_job

pytestmark = pytest.mark.integration


@contextlib.contextmanager
def shown_by_events(app: Celery) -> Iterator[list[str]]:
    """The keyword arguments in the events of tasks, as Flower reads them."""
    shown: list[str] = []
    with app.connection() as connection:
        handlers = {"task-started": lambda event: shown.append(event.get("kwargs", ""))}
        receiver = app.events.Receiver(connection, handlers=handlers)
        watcher = threading.Thread(target=receiver.capture)
        watcher.start()
        yield shown
        receiver.should_stop = True
        watcher.join()


def test_inspect_active_names_the_job_that_was_claimed(
    tmp_path: Path, sqlite_url: str, redis_url: str
) -> None:
    gate = tmp_path / "gate"
    settings = {"SPOOL_MODELS": f"plain=gate={gate}", "SPOOL_CONCURRENCY": "1"}
    settings |= {"SPOOL_DEFAULT_MODEL": "plain", "SPOOL_CELERY_REMOTE_CONTROL": "true"}
    fleet = Fleet(tmp_path, sqlite_url, redis_url, **settings)
    recording = write_wav(tmp_path / "a.wav", speechlike(3))
    hinted = fleet.submit(recording)
    with fleet.db.begin() as tx:
        new = NewJob(Source("file", recording.as_uri()), JobOptions(model="plain"), "b.wav", priority=HIGH)
        urgent = create_job(tx, new)[0].id
    app = celery_app(fleet.settings)

    def active() -> list[tuple[list[str], dict[str, object]]]:
        answers = app.control.inspect(timeout=1.0).active() or {}
        return [(task["args"], task["kwargs"]) for tasks in answers.values() for task in tasks]

    with shown_by_events(app) as shown:
        worker = fleet.start()
        until(lambda: any(kwargs.get("job_id") == urgent for _, kwargs in active()), "the job is named")
        assert [kwargs["attempt"] for _, kwargs in active()] == [1]
        gate.touch()
        until(lambda: any(urgent in kwargs for kwargs in shown), "Flower's events name it too")
        until(lambda: fleet.ended([hinted, urgent]), "both ended")
    assert drained(worker) == 0
    app.close()
    fleet.close()
