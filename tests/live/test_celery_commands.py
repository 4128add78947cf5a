"""Celery's own commands, as its documentation shows them, with a worker that `celery worker` started."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import ROOT, Fleet, drained
from ops.testbed.waiting import until
from spool.domain import JobState

pytestmark = pytest.mark.integration
CELERY = ("-m", "celery", "-A", "worker.tasks")


@pytest.fixture
def make_fleet(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[Callable[..., Fleet]]:
    fleets: list[Fleet] = []

    def make(**environment: str) -> Fleet:
        environment = {"SPOOL_DEFAULT_MODEL": "demo-tdt", "SPOOL_LEASE_SECONDS": "60", **environment}
        fleets.append(Fleet(tmp_path, sqlite_url, redis_url, **environment))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.close()


def _environment(fleet: Fleet, **own: str) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SPOOL_")}
    return {**clean, **fleet.environment, **own}


def _celery(fleet: Fleet, *arguments: str, **own: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *CELERY, *arguments]
    env = _environment(fleet, **own)
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_worker_of_celery_worker_is_complete_and_obeys_its_commands(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = make_fleet(SPOOL_CELERY_REMOTE_CONTROL="true")
    worker = fleet.start(*CELERY, "worker", "-c", "2")
    assert fleet.worker_row(worker).concurrency == 2
    with (tmp_path / "events").open("wb") as dump:
        events = subprocess.Popen(
            [sys.executable, *CELERY, "events", "--dump"], stdout=dump, cwd=ROOT, env=_environment(fleet)
        )
        until(lambda: "heartbeat" in (tmp_path / "events").read_text(), "heartbeats are dumped")
        job_id = fleet.submit(write_wav(tmp_path / "a.wav", speechlike(5)), "demo-tdt")
        until(lambda: fleet.ended([job_id]), "the job ended")
        shown = f"{{'job_id': '{job_id}', 'attempt': 1}}"
        until(lambda: shown in (tmp_path / "events").read_text(), "an event names the job and its attempt")
        events.terminate()
        events.wait()
    assert fleet.job(job_id).state is JobState.DONE
    node = f"celery@{socket.gethostname()}"
    for arguments in (("status",), ("inspect", "ping"), ("inspect", "active"), ("inspect", "stats")):
        answer = _celery(fleet, *arguments, "-t", "60", "-d", node)
        assert answer.returncode == 0, answer.stderr
        assert "1 node online" in answer.stdout
    assert "spool.transcribe" in _celery(fleet, "inspect", "registered", "-t", "60", "-d", node).stdout
    assert drained(worker) == 0
    assert fleet.workers()[0].state == "stopped"


def test_a_worker_of_celery_worker_refuses_in_one_sentence(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet()
    refusals = [
        _celery(fleet, "worker", "-P", "solo"),
        _celery(fleet, "worker", "-Q", "other"),
        _celery(fleet, "worker", SPOOL_DATABASE_URL=f"sqlite:///{fleet.home}/empty.db"),
        _celery(fleet, "worker", SPOOL_LEASE_SECONDS="soon"),
    ]
    assert [refusal.returncode for refusal in refusals] == [1, 1, 1, 1]
    words = ("leave out -P", "leave out -Q", "run the migrations", "SPOOL_LEASE_SECONDS")
    for refusal, wanted in zip(refusals, words, strict=True):
        assert wanted in refusal.stderr
        assert len(refusal.stderr.strip().splitlines()) == 1


def test_remote_control_is_off_unless_it_is_asked_for(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet()
    worker = fleet.start(*CELERY, "worker")
    answer = _celery(fleet, "inspect", "ping")
    assert "No nodes replied" in answer.stderr
    assert _celery(fleet, "control", "shutdown").returncode != 0
    assert worker.poll() is None
    assert drained(worker) == 0
