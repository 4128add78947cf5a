"""A measured quality takes a worker out of service, is reported, and survives a broken file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from api.presenters.jobs import present_worker
from spool.domain import Quality
from spool.settings import Settings
from spool.store import Database, WorkerInfo, heartbeat, list_workers, register_worker
from worker.models import list_measured, quality_problem, read_qualities, write_quality
from worker.service import machine_problems

GOOD = Quality(21, 21, 0.048, 0.048, 20.0, "float32", "Device(cpu, 0)", "2026-11-22T19:00:00+00:00")
BAD = replace(GOOD, no_worse=19, wer=0.09, dtype="float16")


def test_measurements_are_kept_by_model(tmp_path: Path) -> None:
    assert read_qualities(tmp_path) == {}
    write_quality(tmp_path, "a", GOOD)
    write_quality(tmp_path, "b", BAD)
    write_quality(tmp_path, "a", BAD)
    assert read_qualities(tmp_path) == {"a": BAD, "b": BAD}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": {"recordings": 0}}'])
def test_a_broken_file_is_no_measurement(tmp_path: Path, text: str) -> None:
    (tmp_path / "quality.json").write_text(text)
    assert read_qualities(tmp_path) == {}
    assert quality_problem(tmp_path, ["a"], 1.0) is None


def test_a_model_that_is_worse_than_allowed_is_a_problem(
    tmp_path: Path, make_settings: Callable[..., Settings]
) -> None:
    write_quality(tmp_path, "a", GOOD)
    write_quality(tmp_path, "b", BAD)
    assert quality_problem(tmp_path, ["a"], 0.99) is None
    assert quality_problem(tmp_path, ["a", "b"], 0.9) is None
    problem = quality_problem(tmp_path, ["a", "b"], 0.99)
    assert problem is not None
    assert "b in float16 transcribes 2 of 21 recordings worse than in float32: QoI 0.905" in problem
    # And the worker's health asks, for the models that it has
    settings = make_settings()
    write_quality(settings.home, next(iter(settings.models)), BAD)
    db = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert ["QoI 0.905" in each for each in machine_problems(settings, db)] == [True]
    db.close()


def test_models_that_were_measured_and_are_good_enough(tmp_path: Path) -> None:
    models = {"a": "/models/a", "b": "/models/b", "c": "/models/c"}
    assert list_measured(tmp_path, models, 0.99) == {}
    write_quality(tmp_path, "a", GOOD)
    write_quality(tmp_path, "b", BAD)
    write_quality(tmp_path, "d", GOOD)
    assert list_measured(tmp_path, models, 0.99) == {"/models/a": None}
    assert list_measured(tmp_path, models, 0.9) == {"/models/a": None, "/models/b": None}


def test_a_heartbeat_reports_the_quality(db: Database) -> None:
    info = WorkerInfo("wrk_1", "studio-1", "cpu", "host", "chip", "0.1.0", 1, ("a",), 100, 4)
    with db.begin() as tx:
        register_worker(tx, info)
        heartbeat(tx, info.id, "ready", 0, quality={"a": BAD})
    with db.read() as tx:
        (worker,) = list_workers(tx)
    assert worker.quality == {"a": BAD}
    shown = present_worker(worker).quality["a"]
    assert (shown.qoi, shown.wer, shown.dtype) == (0.9048, 0.09, "float16")
