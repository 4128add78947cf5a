"""A worker that shares its machine: it hands its jobs back when its hours end, and comes back by itself."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from ops.testbed.fake_models import LOADER, tone
from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import Fleet, drained
from ops.testbed.waiting import until
from spool.domain import JobState, parse_hours
from spool.settings import Settings
from worker.engine import Engine, EngineOptions, pause_seconds
from worker.service import OffHours

NIGHT = datetime(2026, 11, 18, 23, 0).timestamp()  # by the wall clock of this machine; a Wednesday
DAY = datetime(2026, 11, 18, 12, 0).timestamp()


@pytest.fixture
def fleet(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[Fleet]:
    told = {
        "SPOOL_MODELS": f"plain=plain,gated=gate={tmp_path / 'gate'}",
        "SPOOL_DEFAULT_MODEL": "plain",
        "SPOOL_HEARTBEAT_SECONDS": "0.2",
        "SPOOL_MAX_BATCH": "1",
        "SPOOL_WORK_HOURS": "19:00-07:00,sat,sun",
        "TEST_CLOCK": str(tmp_path / "clock"),
    }
    fleet = Fleet(tmp_path, sqlite_url, redis_url, **told)
    yield fleet
    fleet.close()


def set_clock(folder: Path, instant: float) -> None:
    draft = folder / "clock.draft"
    draft.write_text(str(instant))
    os.replace(draft, folder / "clock")


def test_it_hands_back_when_its_hours_end_and_goes_on_when_they_begin(fleet: Fleet, tmp_path: Path) -> None:
    set_clock(tmp_path, NIGHT)
    worker = fleet.start()
    job_id = fleet.submit(write_wav(tmp_path / "long.wav", speechlike(100)), "gated")
    until((tmp_path / "gate.reached").exists, "the first chunk is on the device")
    set_clock(tmp_path, DAY)
    until(lambda: fleet.worker_row(worker).state == "resting", "the worker rests")
    reason = fleet.worker_row(worker).reason or ""
    assert reason.startswith("outside its hours (19:00-07:00,sat,sun) until 19:00 (2026-11-18T19:00")
    (tmp_path / "gate").touch()
    until(lambda: fleet.job(job_id).state is JobState.QUEUED, "the job is handed back")
    until(lambda: fleet.worker_row(worker).loaded_models == (), "no model is in memory")
    assert (fleet.job(job_id).crashes, fleet.job(job_id).transient_failures) == (0, 0), "nobody is to blame"
    assert fleet.chunks(job_id), "what was on the device is kept"
    set_clock(tmp_path, NIGHT)
    until(lambda: fleet.ended([job_id]), "the job ended")
    assert fleet.job(job_id).state is JobState.DONE
    until(lambda: fleet.worker_row(worker).state == "ready", "the worker is ready again")
    assert fleet.worker_row(worker).reason is None
    assert drained(worker) == 0
    assert fleet.worker_row(worker).busy_ns == fleet.worker_row(worker).engine_busy_ns == fleet.billed_ns()


def test_one_that_starts_outside_its_hours_takes_nothing(fleet: Fleet, tmp_path: Path) -> None:
    set_clock(tmp_path, DAY)
    job_id = fleet.submit(write_wav(tmp_path / "a.wav", speechlike(5)))
    worker = fleet.start(state="resting")
    assert fleet.job(job_id).attempt == 0
    set_clock(tmp_path, NIGHT)
    until(lambda: fleet.ended([job_id]), "the job ended")
    assert drained(worker) == 0


def test_a_rest_is_told_once_with_its_end() -> None:
    now = [NIGHT]
    off = OffHours("19:00-07:00", lambda: now[0])
    assert not off.look()
    assert off.reason is None
    now[0] = DAY
    assert off.look()
    assert "until 19:00" in (off.reason or "")
    assert not off.look()
    now[0] = NIGHT
    assert off.look()
    assert off.reason is None
    assert not OffHours("").look(), "without hours there is no rest"


# --- a share of the time --------------------------------------------------------------------------------


def test_a_pause_is_as_long_as_the_share_asks() -> None:
    assert pause_seconds(2_000_000_000, 1.0) == 0
    assert pause_seconds(2_000_000_000, 0.5) == 2.0
    assert pause_seconds(2_000_000_000, 0.2) == pytest.approx(8.0)
    assert pause_seconds(0, 0.1) == 0


@pytest.mark.integration
def test_the_engine_rests_between_batches() -> None:
    share, count = 0.25, 4
    with_share = EngineOptions(slots=2, loader=LOADER, share=share)
    engine = Engine(with_share).start()
    try:
        begun = time.monotonic_ns()
        busy = [engine.submit("job", tone(1.0), "sleep=0.02").result(60).engine_ns for _ in range(count)]
        wall = time.monotonic_ns() - begun
    finally:
        engine.close()
    assert sum(busy) >= count * 20_000_000, "a rest is on nobody's bill, the work is"
    # Each batch but the last is followed by its rest before the next begins: a bound from below, however slow
    # the machine.
    assert wall >= sum(busy) + sum(busy[:-1]) * (1 - share) / share
    assert engine.busy_ns == sum(busy)


def test_settings_reach_the_engine(make_settings: Callable[..., Settings]) -> None:
    from worker.engine import engine_options

    assert engine_options(make_settings(work_share=0.5)).share == 0.5
    assert parse_hours(make_settings(work_hours="sat").work_hours).spans
