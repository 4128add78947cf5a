"""A real Celery worker with Spool's configuration on a real Redis, through the accidents of a broker."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery

from spool.broker import EmbeddedRedis, queue_depth, send_hint, temporary_home
from spool.broker.celery_app import celery_app
from spool.settings import Settings

QUEUE = "spool.cpu"
WORKER = """
import sys, time
from pathlib import Path
from spool.broker.celery_app import TASK, celery_app
from spool.settings import load_settings

home, redis_url, record = sys.argv[1:]
app = celery_app(load_settings({}, home=home, redis_url=redis_url, concurrency=2))

@app.task(name=TASK)
def transcribe(job_id):
    with open(record, "a") as lines:
        lines.write(f"begin {job_id}\\n")
    while job_id.startswith("slow") and not Path(record + ".go").exists():
        time.sleep(0.01)
    with open(record, "a") as lines:
        lines.write(f"end {job_id}\\n")

app.Worker(queues=["spool.cpu"], loglevel="INFO", without_gossip=True, without_mingle=True).start()
"""


class RunningWorker:
    def __init__(self, home: Path, server: EmbeddedRedis, app: Celery) -> None:
        self.server = server
        self.app = app
        self.record = home / "record"
        self.record.touch()
        with (home / "worker.log").open("wb") as log:
            command = [sys.executable, "-c", WORKER, str(home), server.url, str(self.record)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def saw(self, line: str) -> int:
        return self.record.read_text().splitlines().count(line)

    def until(self, truth: Callable[[], bool]) -> None:
        """Wait for something that has to become true; the test's own time limit ends a wait in vain."""
        while not truth():
            assert self.process.poll() is None, "the worker ended"
            time.sleep(0.02)

    def let_go(self) -> None:
        Path(f"{self.record}.go").touch()


@pytest.fixture
def worker(make_settings: Callable[..., Settings]) -> Iterator[RunningWorker]:
    home = temporary_home()
    server = EmbeddedRedis(home)
    server.start()
    app = celery_app(make_settings(redis_url=server.url))
    running = RunningWorker(home, server, app)
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()
    app.close()
    server.stop()
    shutil.rmtree(home)


def test_a_worker_lives_through_the_accidents_of_its_broker(worker: RunningWorker) -> None:
    send_hint(worker.app, "job_1", QUEUE)
    worker.until(lambda: worker.saw("end job_1") == 1)

    # An emptied broker takes messages as before
    with worker.server.client() as client:
        client.flushall()
    send_hint(worker.app, "job_2", QUEUE)
    worker.until(lambda: worker.saw("end job_2") == 1)

    # A killed broker comes back with what it held, and the worker finds it again
    worker.server.kill()
    worker.server.start()
    send_hint(worker.app, "job_3", QUEUE)
    worker.until(lambda: worker.saw("end job_3") == 1)
    assert worker.saw("end job_1") == worker.saw("end job_2") == 1


def test_a_worker_takes_no_more_than_it_can_run_and_drains_at_sigterm(worker: RunningWorker) -> None:
    for number in range(5):
        send_hint(worker.app, f"slow_{number}", QUEUE)
    worker.until(lambda: worker.record.read_text().count("begin") == 2)
    assert queue_depth(worker.app, QUEUE) == 3, "no prefetch"

    worker.process.send_signal(signal.SIGTERM)
    worker.let_go()

    assert worker.process.wait(60) == 0
    lines = worker.record.read_text()
    assert lines.count("begin") == lines.count("end"), "what was begun was ended"
    assert queue_depth(worker.app, QUEUE) == 5 - lines.count("begin"), "the rest stayed where it was"
