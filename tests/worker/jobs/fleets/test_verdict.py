"""Law 9: no worker's fault fails a job. A sick worker beside a healthy one, over real processes."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.testbed.fake_models import FAIL, RAISE, poisoned
from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import Fleet, drained
from ops.testbed.waiting import until
from spool.domain import JobState

JOBS = 60
OUT_SECONDS = 10.0


@pytest.fixture
def make_fleet(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[Callable[..., Fleet]]:
    fleets = []

    def make(**environment: str) -> Fleet:
        models = {"SPOOL_MODELS": "plain=plain+sleep=0.01", "SPOOL_DEFAULT_MODEL": "plain"}
        models["SPOOL_LEASE_SECONDS"] = "30"  # a busy machine must lose no job by being slow
        fleets.append(Fleet(tmp_path, sqlite_url, redis_url, **models, **environment))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.close()


SICK = {
    "the model raises on every batch": "plain=raises",
    "the model's folder is missing": "plain=load-fails",
    "the weights give NaN": "plain=nan",
}


@pytest.mark.parametrize(
    "illness",
    [
        pytest.param("the model raises on every batch", marks=pytest.mark.long),
        pytest.param("the model's folder is missing", marks=pytest.mark.long),
        "the weights give NaN",
    ],
)
def test_a_sick_worker_fails_no_job_and_takes_itself_out(
    make_fleet: Callable[..., Fleet], tmp_path: Path, illness: str
) -> None:
    fleet = make_fleet()
    models = SICK[illness]
    sick = fleet.start(name="sick", SPOOL_MODELS=models, SPOOL_DEFAULT_MODEL=models.partition("=")[0])
    healthy = fleet.start(name="healthy")
    recording = write_wav(tmp_path / "a.wav", speechlike(3))
    began = time.monotonic()
    jobs = [fleet.submit(recording) for _ in range(JOBS)]

    until(lambda: fleet.worker_row(sick).state == "unwell", "the sick one takes itself out")
    assert time.monotonic() - began < OUT_SECONDS
    assert "failed here" in (fleet.worker_row(sick).reason or "")
    until(lambda: fleet.ended(jobs), "all jobs ended")
    ended = [fleet.job(job_id) for job_id in jobs]
    assert Counter(job.state for job in ended) == {JobState.DONE: JOBS}
    refused = [job for job in ended if job.refusals]
    assert 3 <= len(refused) <= 2 * fleet.settings.concurrency, "it does not win every claim"
    assert {job.attempt for job in refused} == {2}
    assert {job.crashes for job in ended} == {job.transient_failures for job in ended} == {0}
    assert drained(sick) == drained(healthy) == 0
    assert fleet.worker_row(healthy).reason is None


def test_a_worker_that_lacks_a_model_serves_its_others(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = make_fleet()
    fleet.start(name="two", SPOOL_MODELS="plain=plain+sleep=0.01,rare=plain+sleep=0.02")
    lacking = fleet.start(name="one")
    recording = write_wav(tmp_path / "a.wav", speechlike(3))
    jobs = [fleet.submit(recording, model) for _ in range(JOBS // 4) for model in ("rare", "plain")]
    until(lambda: fleet.ended(jobs), "all jobs ended")
    assert Counter(fleet.job(job_id).state for job_id in jobs) == {JobState.DONE: len(jobs)}
    assert not any(fleet.job(job_id).refusals for job_id in jobs), "it takes none of that model"
    assert fleet.worker_row(lacking).state == "ready"
    assert fleet.worker_row(lacking).busy_ns > 0


def test_a_worker_without_the_share_fails_no_job(make_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    fleet = make_fleet(SPOOL_UNWELL_RETRY_SECONDS="0.3")
    share = tmp_path / "share"
    share.mkdir()
    lacking = fleet.start(name="lacking", SPOOL_SOURCE_ROOTS="")
    recording = write_wav(share / "a.wav", speechlike(3))
    alone = fleet.submit(recording)
    until(lambda: fleet.worker_row(lacking).state == "unwell", "nobody else is there")
    assert not fleet.ended([alone])

    fleet.start(name="mounted", SPOOL_SOURCE_ROOTS=str(share))
    jobs = [alone, *(fleet.submit(recording) for _ in range(JOBS // 2))]
    until(lambda: fleet.ended(jobs), "all jobs ended")
    ended = [fleet.job(job_id) for job_id in jobs]
    assert Counter(job.state for job in ended) == {JobState.DONE: len(jobs)}
    if refused := [job for job in ended if job.refusals]:
        assert {name for job in refused for name in job.refusals or {}} == {"lacking"}
    assert drained(lacking) == 0


@pytest.mark.long
def test_a_worker_that_lacks_a_language_model_leaves_its_jobs_to_others(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = make_fleet()
    fleet.environment["SPOOL_MODELS"] = "plain=asks+sleep=0.01"  # a model that knows language models
    (tmp_path / "news.arpa").write_text("\\data\\\n")
    fleet.start(name="both", SPOOL_LANGUAGE_MODELS=f"news={tmp_path / 'news.arpa'}")
    lacking = fleet.start(name="lacking")
    recording = write_wav(tmp_path / "a.wav", speechlike(3))
    jobs = [fleet.submit(recording, decoder="beam", language_model="news") for _ in range(JOBS // 2)]
    plain = [fleet.submit(recording) for _ in range(JOBS // 2)]
    until(lambda: fleet.ended([*jobs, *plain]), "all jobs ended")
    ended = [fleet.job(job_id) for job_id in [*jobs, *plain]]
    assert Counter(job.state for job in ended) == {JobState.DONE: len(ended)}
    refused = [job for job in ended if job.refusals]
    assert 1 <= len(refused) <= fleet.settings.concurrency, "it takes no more of them"
    assert fleet.worker_row(lacking).state == "ready", "it is not ill"
    assert fleet.worker_row(lacking).busy_ns > 0


@pytest.mark.parametrize("value", [RAISE, pytest.param(FAIL, marks=pytest.mark.long)])
def test_two_workers_or_a_self_test_convict_a_recording(
    make_fleet: Callable[..., Fleet], tmp_path: Path, value: float
) -> None:
    fleet = make_fleet()
    workers = [fleet.start(name="alpha"), fleet.start(name="beta")]
    bad = fleet.submit(write_wav(tmp_path / "bad.wav", poisoned(speechlike(20), value)))
    good = [fleet.submit(write_wav(tmp_path / f"{i}.wav", speechlike(20))) for i in range(5)]
    until(lambda: fleet.ended([bad, *good]), "all jobs ended")
    job = fleet.job(bad)
    assert (job.state, job.error_code, job.attempt) == (JobState.FAILED, "engine", 2)
    assert {fleet.job(job_id).state for job_id in good} == {JobState.DONE}
    assert {fleet.worker_row(worker).state for worker in workers} == {"ready"}


@pytest.mark.long
def test_a_pool_whose_model_never_loads_ends_honestly(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = make_fleet(SPOOL_UNWELL_RETRY_SECONDS="0.3", SPOOL_MODEL_GRACE_SECONDS="3")
    models = "plain=load-fails,rare=plain"
    worker = fleet.start(SPOOL_MODELS=models, state="")
    recording = write_wav(tmp_path / "a.wav", speechlike(3))
    jobs = [fleet.submit(recording) for _ in range(12)]
    other = fleet.submit(recording, "rare")
    until(lambda: fleet.worker_row(worker).state == "unwell", "the worker is out")
    assert not fleet.ended(jobs), "it may pass"
    until(lambda: fleet.ended(jobs), "all jobs ended")
    for job in map(fleet.job, jobs):
        assert (job.state, job.error_code) == (JobState.FAILED, "model_unreadable")
        assert "No worker could load the model" in (job.error_message or "")
    assert fleet.job(other).state is not JobState.FAILED, "its model is not at fault"
    assert drained(worker) == 0


def test_a_pool_of_one_ends_honestly(make_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    fleet = make_fleet(SPOOL_UNWELL_RETRY_SECONDS="0.3")
    gate = tmp_path / "mended"
    worker = fleet.start(SPOOL_MODELS=f"plain=broken-until={gate}")
    bad = fleet.submit(write_wav(tmp_path / "bad.wav", poisoned(speechlike(20), RAISE)))
    good = fleet.submit(write_wav(tmp_path / "good.wav", speechlike(20)))
    until(lambda: fleet.worker_row(worker).state == "unwell", "the worker is out")
    assert "self-test" in (fleet.worker_row(worker).reason or "")
    assert not fleet.job(bad).state.terminal
    gate.touch()
    until(lambda: fleet.ended([bad, good]), "both ended")
    assert fleet.job(good).state is JobState.DONE
    assert (fleet.job(bad).state, fleet.job(bad).error_code) == (JobState.FAILED, "engine")
    assert drained(worker) == 0
