"""`spool-worker status`: what health checks and upgrades go by."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.testbed.invoking import Invoked, invoke
from ops.testbed.rows import registered
from spool.store import Database, WorkerState, heartbeat, stop_worker
from worker.cli.main import main

Ask = Callable[..., Invoked]


@pytest.fixture
def ask(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("SPOOL_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("SPOOL_HOME", str(tmp_path))
    monkeypatch.setenv("SPOOL_WORKER_NAME", "mini")
    return lambda *arguments: invoke(main, ["status", *arguments])


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[Database]:
    database = Database(sqlite_url)
    yield database
    database.close()


def test_a_worker_that_never_was(ask: Ask) -> None:
    said = ask()
    assert (said.exit_code, said.stdout) == (1, "mini: no worker of this name has been started\n")
    assert json.loads(ask("--json").stdout) is None


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        ("starting", None, 1),
        ("ready", None, 0),
        ("resting", "outside its hours until 19:00", 0),
        ("draining", None, 1),
        ("unwell", "the disk is full", 1),
    ],
)
def test_at_work_or_resting_is_well(
    ask: Ask, sqlite: Database, state: WorkerState, reason: str | None, code: int
) -> None:
    worker_id = registered(sqlite, "mini")
    with sqlite.begin() as tx:
        heartbeat(tx, worker_id, state, 0, reason=reason)
    said = ask("--wait", "0")
    assert said.exit_code == code
    assert said.stdout.startswith(f"mini: {state}" + (f": {reason}" if reason else "") + "; version 0.1")
    found = json.loads(ask("--json").stdout)
    assert (found["id"], found["state"], found["reason"]) == (worker_id, state, reason)


def test_the_latest_run_of_that_name_counts(ask: Ask, sqlite: Database) -> None:
    for state in ("ready", "ready"):
        worker_id = registered(sqlite, "mini")
        with sqlite.begin() as tx:
            heartbeat(tx, worker_id, state, 0)
            stop_worker(tx, worker_id)
    assert (ask().exit_code, json.loads(ask("--json").stdout)["state"]) == (1, "stopped")
