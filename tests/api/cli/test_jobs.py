"""`spool cancel` and `spool retry` over many jobs, against the real server; and how long is left."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.cli.main import main
from api.cli.progress import describe_left
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def spool(live: Live, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        done = invoke(main, list(arguments))
        assert done.exit_code == code, done
        return done.stdout, done.stderr

    return run


@pytest.fixture
def submit(http: httpx.Client, recordings: Path) -> Callable[..., str]:
    def submit(**request: Any) -> str:
        return str(http.post("/v1/jobs", json=file_job(recordings, **request)).json()["id"])

    return submit


def state_of(http: httpx.Client, job_id: str) -> str:
    return str(http.get(f"/v1/jobs/{job_id}").json()["state"])


def test_jobs_are_cancelled_by_id_or_by_filter(
    spool: Run, http: httpx.Client, submit: Callable[..., str]
) -> None:
    named = [submit(), submit()]
    tagged, other = submit(tags={"box": "7"}), submit(tags={"box": "8"})

    out, _ = spool("cancel", *named)
    by_tag, _ = spool("cancel", "--tag", "box=7")

    assert out.splitlines() == [f"{job_id} cancelled" for job_id in named]
    assert by_tag == f"{tagged} cancelled\n"
    assert state_of(http, other) == "queued"
    assert "no such jobs" in spool("cancel", "--tag", "box=7")[0]


def test_one_that_cannot_be_cancelled_stops_no_other(spool: Run, submit: Callable[..., str]) -> None:
    first, second = submit(), submit()
    spool("cancel", first)

    out, err = spool("cancel", first, second, code=1)

    assert out == f"{second} cancelled\n"
    assert f"{first}: Job {first} is cancelled and cannot be cancelled." in err


def test_failed_jobs_of_a_project_are_retried_together(
    live: Live, spool: Run, http: httpx.Client, submit: Callable[..., str]
) -> None:
    failed = {submit(project="reels"), submit(project="reels")}
    elsewhere = submit(project="calls")
    worker = live.work()
    for job_id in (*failed, elsewhere):
        worker.fail(job_id, "audio_empty", "nothing in it")

    retried = json.loads(spool("retry", "--project", "reels", "--json")[0])

    assert {job["id"] for job in retried} == failed
    assert state_of(http, elsewhere) == "failed"


@pytest.mark.parametrize("command", ["cancel", "retry"])
def test_without_ids_or_filters_nothing_is_changed(spool: Run, command: str) -> None:
    _, err = spool(command, code=2)

    assert "Name jobs by their ids, or choose them with --batch, --project, --name or --tag." in err


@pytest.mark.parametrize(
    ("elapsed", "done", "left", "expected"),
    [(10, 2, 4, "about 20.0 s left"), (60, 1, 60, "about 1:00:00 left"), (2, 1, 1, ""), (10, 0, 5, "")],
)
def test_time_left_follows_from_the_pace(elapsed: float, done: float, left: float, expected: str) -> None:
    assert describe_left(elapsed, done, left) == expected
