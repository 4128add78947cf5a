"""An idle worker measures its models in 8-bit integers, once, and never beside work."""

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.nn.int8_products import can_run
from kernels.runtime import compiler
from ops.testbed.fake_models import LOADER, tone
from ops.testbed.waiting import until
from spool import clock
from spool.domain import Quality
from spool.settings import Settings
from spool.store import Database
from worker.engine import Engine, EngineOptions
from worker.models import read_qualities
from worker.models.quality import read_unmeasured
from worker.service import WastedTime
from worker.service.context import WorkerContext
from worker.service.integers import IntegerMeasurement, WorkerIdleness, available_memory, measuring_command

pytestmark = pytest.mark.integration
MEASURED = Quality(21, 21, 0.05, 0.05, 20.0, "int8", "Device(cpu, 0)", "2026-11-28T04:00:00+00:00")
SLOW = "import time; time.sleep(600)"


class Idle:
    """A worker whose work a test decides."""

    def __init__(self) -> None:
        self.busy = threading.Event()
        self.loaded: list[str] = []

    def is_busy(self) -> bool:
        return self.busy.is_set()

    def reload(self, path: str) -> bool:
        self.loaded.append(path)
        return True


class Bench:
    """Measurements of settings, and what was begun: a line of a file for each."""

    def __init__(self, settings: Settings, begun: Path) -> None:
        self.settings, self.idle, self._begun = settings, Idle(), begun
        self.script = SLOW
        self._running: list[IntegerMeasurement] = []

    def command(self, model: str) -> list[str]:
        note = f"import os; open({str(self._begun)!r}, 'a').write(f'{model} {{os.getpid()}}\\n'); "
        return [sys.executable, "-c", note + self.script]

    def writes(self, quality: Quality) -> str:
        document = json.dumps({"a": quality.document()})
        return f"open({str(self.settings.home / 'quality.json')!r}, 'w').write({document!r})"

    @property
    def begun(self) -> list[str]:
        return self._begun.read_text().split("\n")[:-1] if self._begun.exists() else []

    def start(self, quiet_seconds: float = 0.0) -> IntegerMeasurement:
        measurement = IntegerMeasurement(self.settings, self.idle, self.command, quiet_seconds)
        measurement.start()
        self._running.append(measurement)
        return measurement

    def close(self) -> None:
        for measurement in self._running:
            measurement.stop()


@pytest.fixture
def bench(make_settings: Callable[..., Settings], tmp_path: Path) -> Iterator[Bench]:
    settings = make_settings(models={"a": "/models/a"}, default_model="a")
    settings.home.mkdir(parents=True, exist_ok=True)
    made = Bench(settings, tmp_path / "begun")
    yield made
    made.close()


def is_alive(line: str) -> bool:
    """Whether the process of such a line runs."""
    status = Path("/proc") / line.split()[1] / "status"
    return status.exists() and "State:\tZ" not in status.read_text()


def test_a_model_is_measured_once_and_then_loaded_anew(bench: Bench) -> None:
    bench.script = bench.writes(MEASURED)
    bench.start().join(30)
    assert bench.idle.loaded == ["/models/a"]
    # And a worker that starts later does not measure it again
    bench.start().join(30)
    assert len(bench.begun) == 1


def test_a_model_that_is_worse_keeps_float32(bench: Bench) -> None:
    bench.script = bench.writes(replace(MEASURED, no_worse=20))
    bench.start().join(30)
    assert read_qualities(bench.settings.home)["a"].no_worse == 20
    assert bench.idle.loaded == []


def test_what_cannot_be_measured_is_not_tried_again(bench: Bench) -> None:
    bench.script = "raise SystemExit('it is quantised')"
    bench.start().join(30)
    assert read_unmeasured(bench.settings.home) == ["a"]
    bench.start().join(30)
    assert len(bench.begun) == 1


def test_work_ends_a_measurement_and_it_is_begun_again_behind_it(bench: Bench) -> None:
    bench.start()
    until(lambda: len(bench.begun) == 1)
    bench.idle.busy.set()
    until(lambda: not is_alive(bench.begun[0]))
    bench.script = bench.writes(MEASURED)
    bench.idle.busy.clear()
    until(lambda: bench.idle.loaded == ["/models/a"])
    assert len(bench.begun) == 2


def test_nothing_is_measured_beside_work_or_too_soon_behind_it(bench: Bench) -> None:
    bench.idle.busy.set()
    busy = bench.start()
    busy.join(2)
    bench.idle.busy.clear()
    busy.stop()
    recent = bench.start(quiet_seconds=600)
    recent.join(2)
    recent.stop()
    assert bench.begun == []


def test_a_model_that_does_not_fit_a_second_time_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    weights = tmp_path / "large" / "model.bin"
    weights.parent.mkdir()
    with weights.open("wb") as file:
        file.truncate(available_memory() // 2)
    bench.settings = bench.settings.model_copy(update={"models": {"a": str(weights.parent)}})
    bench.start().join(30)
    assert bench.begun == []
    assert read_unmeasured(bench.settings.home) == []


def test_a_worker_is_idle_between_jobs_and_loads_a_model_anew(
    make_settings: Callable[..., Settings], db: Database
) -> None:
    settings = make_settings(models={"plain": "plain"}, default_model="plain")
    options = EngineOptions(loader=LOADER, slots=4, slot_samples=16_000)
    with contextlib.closing(Engine(options).start()) as engine:
        context = WorkerContext(settings, db, engine, WastedTime(db), "wrk_1", clock.Event())
        idleness = WorkerIdleness(context)
        assert idleness.is_busy()  # nobody looked before
        assert not idleness.is_busy()
        engine.submit("job", tone(1), "plain").result(60)
        assert idleness.is_busy()
        child = engine.child_pid
        with context.job_gate.share(lambda: False):
            assert idleness.is_busy()
            assert not idleness.reload("plain")
            assert engine.child_pid == child
        assert idleness.reload("plain")
        assert engine.child_pid != child
        assert engine.loaded == ("plain",)


def test_a_worker_that_stops_ends_its_measurement(bench: Bench) -> None:
    measurement = bench.start()
    until(lambda: len(bench.begun) == 1)
    measurement.stop()
    assert not is_alive(bench.begun[0])
    assert read_unmeasured(bench.settings.home) == []


@pytest.mark.parametrize(
    "setting", [{"compute_type": "float32"}, {"compute_type": "int8"}, {"device": "gpu"}]
)
def test_workers_that_need_no_measurement_make_none(bench: Bench, setting: dict[str, str]) -> None:
    settings = bench.settings.model_copy(update=setting)
    assert not IntegerMeasurement(settings, bench.idle).applies


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(compiler() is None or not can_run(), reason="needs a compiler and a CPU with VNNI")
def test_the_command_measures_a_model_of_the_settings(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    demo = str(Path(__file__).parents[3] / "models" / "demo")
    monkeypatch.setenv("SPOOL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPOOL_MODELS", f"demo={demo}")
    settings = make_settings(models={"demo": demo}, default_model="demo")
    idle = Idle()
    # Its low priority would keep it waiting for hours on a busy machine.
    measurement = IntegerMeasurement(settings, idle, lambda model: measuring_command(model)[-7:], 0.0)
    assert measurement.applies
    measurement.start()
    measurement.join(800)
    quality = read_qualities(settings.home)["demo"]
    assert quality.dtype == "int8"
    assert idle.loaded == ([demo] if quality.qoi >= settings.min_qoi else [])
