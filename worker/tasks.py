"""What `celery -A worker.tasks` finds: the application, its one task, and the bootstep that makes a Celery
worker one of Spool's. `spool-worker run` is `celery -A worker.tasks worker` with options of its own.

A message only says that there is work. The job is chosen in SQL (law 1) and may be another than the message
names.
"""

import os
import warnings

from celery import Celery, Task, bootsteps, signals
from celery.concurrency.thread import TaskPool
from celery.exceptions import SecurityWarning
from celery.worker import WorkController

from spool.broker.celery_app import TASK, celery_app, celery_options
from spool.errors import SpoolError
from spool.loading import finish_loading
from spool.logs import configure_logs
from spool.settings import Settings, load_settings
from spool.settings.home import keep_private
from worker.app import Worker
from worker.engine.protocol import DEFAULT_LOADER
from worker.jobs.retry import RetryPolicy
from worker.jobs.runner import run_next
from worker.jobs.services import JobServices
from worker.service import hint_transport

warnings.filterwarnings("ignore", category=SecurityWarning)  # warns root of pickled messages; ours are JSON
hint_transport.install()


def _load_app() -> Celery:
    try:
        return celery_app(load_settings())
    except SpoolError as error:  # Celery's command would print a traceback
        raise SystemExit(error.message) from None


app = _load_app()


class JobTask(Task):  # type: ignore[misc]
    """A task that runs jobs with the services of this process's worker."""

    Request = "worker.service.celery_status:TaskRequest"
    services: JobServices


@app.task(name=TASK, base=JobTask, bind=True)  # type: ignore[untyped-decorator]
def transcribe(self: JobTask, job_id: str) -> None:
    """Run the job if it is its turn, else the one whose turn it is, and then others while there is work."""
    hinted: str | None = job_id
    # Continue without a message: jobs held by a quota have used up theirs.
    while run_next(self.services, hinted) is not None:
        hinted = None


class SpoolStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Starts Spool's part of the worker before Celery takes messages, and stops it after the last task.

    `spool` is what it runs; without it, a worker by the environment and Celery's own options.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: WorkController, spool: Worker | None = None, **_: object) -> None:
        _refuse_options(parent)
        # Gossip and mingle read what other workers send, which a Spool worker has no use for.
        quiet = not app.conf.worker_send_task_events and not parent.task_events
        parent.options.update(without_gossip=True, without_mingle=True, without_heartbeat=quiet)
        self.spool = spool or _worker_of_environment(parent)
        parent.setup_queues(self.spool.intake.queues)

    def start(self, _: WorkController) -> None:
        """Start. On an error the process says so and ends with exit code 1."""
        try:
            transcribe.services = self.spool.start(app)
        except SpoolError as error:
            self.spool.failure = error
            raise SystemExit(error.message) from error
        finish_loading()

    def close(self, _: WorkController) -> None:
        """Hand back running jobs, whatever asked Celery to stop."""
        self.spool.drain()

    def stop(self, parent: WorkController) -> None:
        """Wait for the tasks and stop."""
        parent.pool.stop()
        self.spool.stop()

    terminate = stop


app.steps["worker"].add(SpoolStep)


def run_worker(settings: Settings, *, loader: str = DEFAULT_LOADER, retry: RetryPolicy | None = None) -> int:
    """Run a worker in this process until a stop signal; returns the exit code. Raises SpoolError if it cannot
    start."""
    app.conf.update(celery_options(settings))
    spool = Worker(settings, loader=loader, retry=retry)
    node = app.Worker(
        spool=spool, hostname=f"{settings.worker_name}-{os.getpid()}@{spool.info.host}", quiet=True
    )
    node.start()
    if spool.failure is not None:
        raise spool.failure
    return int(node.exitcode or 0)


@signals.setup_logging.connect  # type: ignore[untyped-decorator]
def _use_our_logs(**_: object) -> None:
    """A receiver of this signal keeps Celery from configuring logging."""


def _refuse_options(parent: WorkController) -> None:
    if not issubclass(parent.pool_cls, TaskPool):
        raise SystemExit("A Spool worker runs jobs in threads: leave out -P, or say -P threads.")
    if set(app.amqp.queues.consume_from) - {app.conf.task_default_queue}:
        raise SystemExit("A Spool worker serves the queues of its pool, name and models: leave out -Q.")


def _worker_of_environment(parent: WorkController) -> Worker:
    settings = load_settings(concurrency=parent.concurrency)
    configure_logs(settings.log_json)
    keep_private(settings.home)
    try:
        return Worker(settings)
    except SpoolError as error:
        raise SystemExit(error.message) from error
