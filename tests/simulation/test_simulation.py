"""The simulation runs clean, again in the same way, and finds a defect that is planted."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from spool import clock
from spool.errors import StorageError
from spool.store.database import Database
from tests.simulation.database import DatabaseFaults
from tests.simulation.mutations.defects import DEFECTS
from tests.simulation.mutations.planting import DoesNotApply, mutate, plant
from tests.simulation.mutations.trying import read_known
from tests.simulation.quotas import seconds_to
from tests.simulation.scheduler import NS, Process, Scheduler
from tests.simulation.shrinking import Size, read_kept, read_sizes, shrink
from tests.simulation.world import make_database

NEW_SEEDS = 6
"""How many runs take a new seed each time, of some 18 s of a processor each."""
LAST = re.compile(r"seed (\d+): (\S+) hours, (\d+) jobs, (\d+) faults, (\d+) violations, digest [0-9a-f]{16}")


def simulate(*options: str, timeout: float = 170) -> tuple[int, list[str]]:
    """The exit code, and the lines of the output."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    return done.returncode, (done.stdout or done.stderr).splitlines()


@pytest.mark.integration
@pytest.mark.parametrize("size", read_kept(), ids=lambda size: f"seed {size.seed}")
def test_a_kept_run_is_clean(size: Size) -> None:
    code, lines = simulate(*size.options)
    assert code == 0, lines
    assert LAST.fullmatch(lines[-1])


@pytest.mark.integration
def test_a_run_can_be_replayed() -> None:
    options = Size(5, hours=0.3, jobs=200, faults=200, workers=3).options
    code, lines = simulate(*options)
    last = LAST.fullmatch(lines[-1])
    assert last is not None
    assert int(last[3]) > 10
    assert int(last[4]) > 5
    assert simulate(*options) == (code, lines)


@pytest.mark.integration
def test_processes_wait_for_locks_of_postgresql_while_others_run() -> None:
    options = Size(6, hours=0.05, jobs=20, faults=300, workers=3, database="postgresql").options
    code, lines = simulate("--show", *options)
    assert code == 0, lines
    last = LAST.fullmatch(lines[-1])
    assert last is not None
    assert int(last[3]) > 10
    assert int(last[4]) > 3
    assert any(re.search(r"[aw]\S+ waits for [aw]", line) for line in lines)


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_on_postgresql_can_be_replayed() -> None:
    """With a new seed, and twice: whatever waits for locks, the same comes of it."""
    new = Size(clock.time_ns() % 1_000_000, 1.0, 400.0, 200.0, 4, "postgresql")
    code, lines = simulate("--show", *new.options, timeout=280)
    assert code == 0, f"make simulate SHRINK=1 {new.variables}\n" + "\n".join(lines)
    assert simulate("--show", *new.options, timeout=280) == (code, lines)


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_that_breaks_a_law_is_made_smaller() -> None:
    large = Size(1, 0.5, 100.0, 10.0, 2)
    small, law = shrink(large, "chunk-without-its-charge")
    assert law == "the audit's rule billed"
    assert small.hours * small.jobs < large.hours * large.jobs
    assert small.workers <= large.workers


@pytest.mark.integration
@pytest.mark.parametrize("number", range(NEW_SEEDS))
def test_a_run_with_a_new_seed_is_clean(number: int, record_property: Callable[[str, object], None]) -> None:
    seed = (clock.time_ns() + number) % 1_000_000
    record_property("drawn", f"seed {seed}")
    new = Size(seed, 0.5, 400, 200, 4)
    code, lines = simulate(*new.options)
    assert code == 0, f"make simulate SHRINK=1 {new.variables}\n" + "\n".join(lines)


@pytest.mark.integration
def test_a_planted_defect_is_found_with_its_timeline() -> None:
    options = ("--seed", "1", "--hours", "0.5", "--jobs", "200", "--faults", "60")
    code, lines = simulate("--mutation", "chunk-without-its-charge", *options)
    assert code == 1
    assert LAST.fullmatch(lines[-1])
    assert any("VIOLATION of the audit's rule billed" in line for line in lines)
    assert any(re.search(r"job \d+ claimed by w\d\.\d+, attempt 1$", line) for line in lines)


@pytest.mark.integration
def test_two_versions_work_in_one_fleet() -> None:
    """The older one is the present tree, loaded a second time: no other is at hand everywhere."""
    options = Size(5, hours=0.3, jobs=200, faults=200, workers=3).options
    code, lines = simulate("--older", ".", "--show", *options)
    assert code == 0, lines
    versions = {
        line.endswith("of the older version") for line in lines if re.search(r"w\d\.\d+ starts", line)
    }
    assert versions == {True, False}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("version", "said"),
    [("no-such-commit", "neither a folder nor a commit"), ("tests", "it has no spool/clock.py")],
)
def test_a_version_that_cannot_be_had_is_refused(version: str, said: str) -> None:
    code, lines = simulate("--older", version)
    assert code == 2
    assert said in lines[0]


@pytest.mark.integration
def test_an_unknown_mutation_is_refused() -> None:
    code, lines = simulate("--mutation", "no-such-defect")
    assert code == 2
    assert lines[0].startswith("There is no mutation 'no-such-defect'; there are fence-without-attempt,")


@pytest.mark.parametrize("name", DEFECTS)
def test_each_mutation_applies_to_the_present_text(name: str) -> None:
    compile(mutate(name, DEFECTS[name]), DEFECTS[name].module, "exec")


def test_a_run_begins_shortly_before_a_month_ends() -> None:
    scheduler = Scheduler(1, print)
    assert seconds_to(scheduler, next_month=False) == seconds_to(scheduler, next_month=True) == 240
    scheduler.now_ns += 300 * NS
    assert seconds_to(scheduler, next_month=False) == 86_400 - 60
    assert seconds_to(scheduler, next_month=True) == 28 * 86_400 - 60


def test_a_run_is_written_as_it_is_read_and_replayed(tmp_path: Path) -> None:
    size, file = Size(31, 0.5, 400, 200, 3, "postgresql"), tmp_path / "sizes.txt"
    file.write_text(f"# a comment\na-name {size}\n", encoding="utf-8")
    assert read_sizes(file, 1) == [(["a-name"], size)]
    assert size.variables == "SEED=31 HOURS=0.5 JOBS=400 FAULTS=200 WORKERS=3 DATABASE=postgresql"


def test_each_known_run_is_of_a_defect_and_on_its_database() -> None:
    for name, size in read_known().items():
        assert size.database == DEFECTS[name].database, name


def test_a_mutation_of_a_module_that_is_imported_comes_too_late() -> None:
    import spool.store.queue.leases

    assert spool.store.queue.leases.__doc__
    with pytest.raises(DoesNotApply, match="comes too late"):
        plant("fence-without-attempt")


class Ran:
    """Two threads that wait for each other under virtual time."""

    def __init__(self, seed: int) -> None:
        self.seen: list[str] = []
        self.scheduler = Scheduler(seed, self.seen.append)
        self.process = Process("p")
        self.queue: clock.Queue[int] = clock.Queue(1)

    def produce(self) -> None:
        for number in range(3):
            clock.sleep(10)
            self.queue.put(number)

    def consume(self) -> None:
        began = clock.monotonic()
        for _ in range(3):
            self.seen.append(f"{self.queue.get()} after {clock.monotonic() - began:g} s")

    def run(self) -> list[str]:
        clock.install(self.scheduler)
        try:
            self.scheduler.spawn(self.process, "produce", self.produce)
            self.scheduler.spawn(self.process, "consume", self.consume)
            self.scheduler.run(lambda: False)
        finally:
            clock.install(None)
        return self.seen


@pytest.mark.parametrize("seed", range(5))
def test_threads_wait_in_virtual_time(seed: int) -> None:
    assert Ran(seed).run() == ["0 after 10 s", "1 after 20 s", "2 after 30 s"]


def test_a_frozen_process_goes_on_later_and_a_killed_one_never() -> None:
    scheduler = Scheduler(1, print)
    seen: list[tuple[str, float]] = []
    frozen, killed, outside = Process("frozen"), Process("killed"), Process("outside")

    def tick(name: str) -> None:
        try:
            clock.sleep(10)
            seen.append((name, scheduler.now_ns / NS))
        finally:
            seen.append((f"{name} ended", scheduler.now_ns / NS))

    def meddle() -> None:
        clock.sleep(5)
        scheduler.freeze(frozen)
        scheduler.kill(killed)
        clock.sleep(60)
        scheduler.thaw(frozen)

    clock.install(scheduler)
    try:
        scheduler.spawn(frozen, "tick", lambda: tick("frozen"))
        dead = scheduler.spawn(killed, "tick", lambda: tick("killed"))
        scheduler.spawn(outside, "meddle", meddle)
        scheduler.run(lambda: False)
    finally:
        clock.install(None)
    assert seen == [("frozen", 65.0), ("frozen ended", 65.0)], "no `finally` of a killed process runs"
    assert not dead.ended


def test_a_lock_and_an_event_are_waited_for_with_a_limit() -> None:
    scheduler = Scheduler(3, print)
    process, lock, event = Process("p"), clock.Lock(), clock.Event()
    seen: list[object] = []

    def hold() -> None:
        with lock:
            clock.sleep(30)
        event.set()

    def try_it() -> None:
        clock.sleep(1)
        seen.append(lock.acquire(timeout=5))
        seen.append(clock.monotonic())
        seen.append(event.wait(100))
        seen.append(clock.monotonic())

    clock.install(scheduler)
    try:
        scheduler.spawn(process, "hold", hold)
        scheduler.spawn(process, "try", try_it)
        scheduler.run(lambda: False)
    finally:
        clock.install(None)
    assert seen == [False, 6.0, True, 30.0]


def test_a_connection_is_waited_for_in_virtual_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    scheduler = Scheduler(3, failed.append)
    database = make_database("sqlite", scheduler, DatabaseFaults(), tmp_path)
    monkeypatch.setattr("spool.store.database.create_engine", database.create_engine)
    seen: list[tuple[str, int]] = []

    def start() -> None:
        pool = Database(database.url, pool_size=1)  # and one connection above that
        scheduler.spawn(process, "short", partial(use, pool, "short", 5))
        scheduler.spawn(process, "long", partial(use, pool, "long", 60))
        clock.sleep(1)
        scheduler.spawn(process, "later", partial(use, pool, "later", 60))
        clock.sleep(1)
        scheduler.spawn(process, "refused", partial(use, pool, "refused", 1))

    def use(pool: Database, name: str, seconds: float) -> None:
        try:
            with pool.read():
                seen.append((name, round(clock.monotonic())))
                clock.sleep(seconds)
        except StorageError:
            seen.append((f"{name}: none", round(clock.monotonic())))

    process = Process("p")
    clock.install(scheduler)
    try:
        scheduler.spawn(process, "start", start)
        scheduler.run(lambda: False)
    finally:
        clock.install(None)
    assert failed == []
    assert sorted(seen[:2]) == [("long", 0), ("short", 0)]
    assert seen[2:] == [("later", 5), ("refused: none", 12)]
