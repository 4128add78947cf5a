"""`spool-worker status`: whether the worker of this machine takes jobs, according to the database.

For health checks and upgrades. Touches no device.
"""

import json
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from spool import clock
from spool.store.database import Database
from spool.store.workers import Worker, list_workers

POLL_SECONDS = 0.5
WELL = frozenset({"ready", "resting"})


def status(
    *,
    wait: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=Number(gte=0),
            help="Wait up to this long until the worker takes jobs.",
        ),
    ] = 0,
    as_json: Annotated[bool, Parameter(name="--json", help="Print one JSON object.")] = False,
) -> None:
    """Show whether the worker of this machine takes jobs; exit code 1 if not."""
    from spool.settings import load_settings

    settings = load_settings()
    db = Database(settings.database_url)
    deadline = clock.monotonic() + wait
    try:
        worker = find_worker(db, settings.worker_name)
        while not at_work(worker) and clock.monotonic() < deadline:
            clock.sleep(POLL_SECONDS)
            worker = find_worker(db, settings.worker_name)
    finally:
        db.close()
    print(_as_json(worker) if as_json else _sentence(settings.worker_name, worker))
    if not at_work(worker):
        raise SystemExit(1)


def find_worker(db: Database, name: str) -> Worker | None:
    """The latest run of the worker of this name. Raises StorageError."""
    with db.read() as tx:
        return next((worker for worker in list_workers(tx) if worker.name == name), None)


def at_work(worker: Worker | None) -> bool:
    """Whether it is alive and takes jobs, now or in its next working hours."""
    return worker is not None and worker.alive and worker.state in WELL


def _sentence(name: str, worker: Worker | None) -> str:
    if worker is None:
        return f"{name}: no worker of this name has been started"
    reason = f": {worker.reason}" if worker.reason else ""
    seen = f"{worker.seen_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{name}: {worker.status}{reason}; version {worker.version}, last heartbeat {seen}"


def _as_json(worker: Worker | None) -> str:
    if worker is None:
        return json.dumps(None)
    return json.dumps(
        {
            "id": worker.id,
            "name": worker.name,
            "state": worker.status,
            "alive": worker.alive,
            "reason": worker.reason,
            "version": worker.version,
            "pid": worker.pid,
        }
    )
