"""The engine with a real child process, real shared memory and a tiny model."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ops.testbed.fake_models import ABORT, FAIL, LOADER, RAISE, RATE, poisoned, tone
from ops.testbed.jobs import taken_in
from ops.testbed.waiting import until
from spool import clock
from spool.domain import HIGH, Recognition
from spool.errors import (
    EngineCrashed,
    EngineError,
    EngineStopped,
    InvalidRequest,
    JobCancelled,
    ModelUnreadable,
)
from worker.engine import BatchLimits, Engine, EngineOptions, ModelCacheOptions

pytestmark = pytest.mark.integration

DEADLINE = 60.0
ROOT = Path(__file__).parents[3]


def options(**changes: object) -> EngineOptions:
    values: dict[str, object] = {
        "slots": 24,
        "slot_samples": 6 * RATE,
        "limits": BatchLimits(utterances=8, samples=8 * 6 * RATE, padding=0.5),
        "loader": LOADER,
        "start_seconds": DEADLINE,
    }
    return EngineOptions(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(options()).start()
    yield engine
    engine.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A batch of the model `gate=<path>` waits until this exists."""
    return tmp_path / "gate"


def reached(gate: Path) -> None:
    until(gate.with_suffix(".reached").exists)


def results(futures: list["Future[Recognition]"]) -> list[Recognition]:
    return [future.result(DEADLINE) for future in futures]


def test_utterances_of_many_jobs_share_batches_and_split_the_time_exactly(engine: Engine, gate: Path) -> None:
    first = engine.submit("a", tone(1), f"gate={gate}")
    reached(gate)
    others = [engine.submit(f"job{i % 3}", tone(1 + i % 3), f"gate={gate}") for i in range(16)]
    taken_in(engine)
    gate.touch()
    answers = results([first, *others])
    assert max(answer.batch_size for answer in answers) > 1
    assert [len(answer.words) for answer in answers] == [1] + [1 + i % 3 for i in range(16)]
    assert sum(answer.engine_ns for answer in answers) == engine.busy_ns > 0
    assert engine.stats.lost_ns == 0
    assert engine._slots.free == 24


def test_a_short_job_does_not_wait_for_a_long_one(engine: Engine, gate: Path) -> None:
    model = f"gate={gate}"
    order: list[str] = []
    futures = [engine.submit("long", tone(1), model)]
    reached(gate)
    futures += [engine.submit("long", tone(1), model) for _ in range(20)]
    futures += [engine.submit("short", tone(1), model)]
    for future, job in zip(futures, ["long"] * 21 + ["short"], strict=True):
        future.add_done_callback(partial(lambda name, _: order.append(name), job))
    taken_in(engine)
    gate.touch()
    results(futures)
    assert order.index("short") <= 9, "in the batch after the one that was on the device"


def test_who_waits_for_an_answer_is_in_the_next_batch(engine: Engine, gate: Path) -> None:
    model = f"gate={gate}"
    order: list[str] = []
    futures = [engine.submit("first", tone(1), model)]
    reached(gate)
    futures += [engine.submit(f"job {n}", tone(1), model) for n in range(20)]
    futures += [engine.submit("urgent", tone(1), model, priority=HIGH)]
    for future, job in zip(futures, ["first", *["batch"] * 20, "urgent"], strict=True):
        future.add_done_callback(partial(lambda name, _: order.append(name), job))
    taken_in(engine)
    gate.touch()
    results(futures)
    assert order.index("urgent") <= 8, "in the batch after the one that was on the device"


def test_a_full_engine_blocks_and_a_cancelled_submit_leaves(engine: Engine, gate: Path) -> None:
    held = [engine.submit("a", tone(1), f"gate={gate}") for _ in range(24)]
    assert engine._slots.free == 0
    cancel = clock.Event()
    outcome: list[object] = []

    def submit() -> None:
        try:
            outcome.append(engine.submit("b", tone(1), f"gate={gate}", cancel=cancel))
        except JobCancelled as error:
            outcome.append(error)

    blocked = threading.Thread(target=submit)
    blocked.start()
    reached(gate)
    assert not outcome, "back-pressure"
    cancel.set()
    blocked.join(DEADLINE)
    assert isinstance(outcome[0], JobCancelled)
    gate.touch()
    results(held)


def test_a_freed_slot_goes_to_the_job_that_holds_fewest(engine: Engine, gate: Path) -> None:
    model = f"gate={gate}"
    held = [engine.submit("greedy", tone(1), model) for _ in range(24)]
    taken: list[str] = []
    lock = threading.Lock()

    def submit(job: str) -> None:
        future = engine.submit(job, tone(1), "plain")
        with lock:
            taken.append(job)
        future.result(DEADLINE)

    threads = [threading.Thread(target=submit, args=(job,)) for job in ["greedy"] * 4 + ["modest"]]
    for thread in threads:
        thread.start()
    until(lambda: len(engine._slots._queue) == 5)
    for slot in [s for s, job in engine._slots._holders.items() if job == "greedy"][:1]:
        engine._slots.release(slot)  # one slot alone, so that the order of the queue shows
    until(lambda: bool(taken))
    assert taken == ["modest"]
    gate.touch()
    results(held)
    for thread in threads:
        thread.join(DEADLINE)


def test_a_killed_child_is_replaced_and_its_batch_answered(engine: Engine, gate: Path) -> None:
    before = results([engine.submit("a", tone(1), "plain")])
    futures = [engine.submit(f"job{i}", tone(2), f"gate={gate}") for i in range(12)]
    reached(gate)
    first_child = engine.child_pid
    assert first_child is not None
    os.kill(first_child, signal.SIGKILL)
    gate.touch()
    after = results(futures)
    assert engine.child_pid != first_child
    assert engine.stats.restarts == 1
    assert sum(answer.engine_ns for answer in before + after) == engine.busy_ns
    assert engine.stats.died_ns > 0
    assert engine.unbilled_ns == engine.stats.died_ns + engine.stats.lost_ns, "nothing is on the device"
    assert engine._slots.free == 24


def test_only_the_utterance_that_ends_the_process_fails(engine: Engine, gate: Path) -> None:
    model = f"gate={gate}"
    first = engine.submit("first", tone(1), model)
    reached(gate)
    good = [engine.submit(f"good{i}", tone(2), model) for i in range(6)]
    bad = engine.submit("bad", poisoned(tone(2), ABORT), model)
    good += [engine.submit(f"late{i}", tone(2), model) for i in range(6)]
    taken_in(engine)
    gate.touch()
    answers = results([first, *good])
    with pytest.raises(EngineCrashed, match="even when it runs alone"):
        bad.result(DEADLINE)
    until(lambda: engine.stats.restarts == 2)
    assert engine.count_unexplained_crashes(DEADLINE * 60) == 0, "both were the bad one's"
    assert sum(answer.engine_ns for answer in answers) == engine.busy_ns
    assert results([engine.submit("next", tone(1), "plain")])[0].words


def test_an_engine_that_dies_on_everything_blames_no_utterance(engine: Engine, tmp_path: Path) -> None:
    ill = tmp_path / "ill"
    ill.touch()
    model = f"ill={ill}"
    futures = [engine.submit(f"job{i}", tone(1 + i), model) for i in range(3)]
    for future in futures:
        with pytest.raises(EngineStopped, match="ends on any utterance"):
            future.result(DEADLINE)
    assert engine.stopped is not None
    assert engine.count_unexplained_crashes(DEADLINE * 60) >= 3
    with pytest.raises(EngineStopped):
        engine.submit("next", tone(1), "plain")
    ill.unlink()
    engine.revive()
    assert engine.count_unexplained_crashes(DEADLINE * 60) == 0
    assert engine.probe(model).result(DEADLINE).frames > 0
    assert engine.busy_ns == 0, "the self-test is on nobody's bill"
    assert results([engine.submit("next", tone(1), model)])[0].engine_ns == engine.busy_ns > 0


def test_a_probe_of_an_engine_that_is_ill_stops_it(engine: Engine, tmp_path: Path) -> None:
    ill = tmp_path / "ill"
    ill.touch()
    with pytest.raises(EngineStopped, match="ends on any utterance"):
        engine.probe(f"ill={ill}").result(DEADLINE)
    ill.unlink()
    engine.revive()
    engine.close()
    with pytest.raises(EngineStopped, match="closed"):
        engine.revive()


def test_an_exception_fails_its_utterance_and_its_time_is_on_no_bill(engine: Engine, gate: Path) -> None:
    model = f"gate={gate}"
    first = engine.submit("first", tone(1), model)
    reached(gate)
    good = [engine.submit(f"good{i}", tone(2), model) for i in range(5)]
    bad = engine.submit("bad", poisoned(tone(2), RAISE), model)
    taken_in(engine)
    gate.touch()
    answers = results([first, *good])
    with pytest.raises(EngineError, match="ValueError: a sample I cannot stand"):
        bad.result(DEADLINE)
    assert engine.stats.restarts == 0
    assert engine.stats.lost_ns > 0
    assert sum(answer.engine_ns for answer in answers) == engine.busy_ns


def test_an_utterance_that_fails_in_its_batch_fails_alone_and_nobody_runs_twice(
    engine: Engine, gate: Path
) -> None:
    model = f"gate={gate}"
    first = engine.submit("first", tone(1), model)
    reached(gate)
    good = [engine.submit(f"good{i}", tone(2), model) for i in range(3)]
    bad = engine.submit("bad", poisoned(tone(2), FAIL), model)
    good += [engine.submit(f"late{i}", tone(2), model) for i in range(3)]
    taken_in(engine)
    gate.touch()
    answers = results([first, *good])
    with pytest.raises(EngineError, match="not a number to me"):
        bad.result(DEADLINE)
    assert [answer.batch_size for answer in answers] == [1] + [7] * 6
    assert sum(answer.engine_ns for answer in answers) == engine.busy_ns
    # The failed one's share of the batch is lost, its neighbours pay their own.
    assert min(abs(engine.stats.lost_ns - answer.engine_ns) for answer in answers[1:]) <= 1
    assert engine.stats.batches == 2


@pytest.mark.parametrize("script", ["load-fails", "load-breaks", "load-aborts"])
def test_a_model_that_does_not_load_fails_its_own_utterances(engine: Engine, script: str) -> None:
    bad = [engine.submit("a", tone(1), script) for _ in range(3)]
    question = engine.describe(script)
    good = engine.submit("b", tone(1), "plain")
    for future in bad:
        with pytest.raises(ModelUnreadable):
            future.result(DEADLINE)
    with pytest.raises(ModelUnreadable):
        question.result(DEADLINE)
    assert good.result(DEADLINE).words
    assert engine.stats.busy_ns == good.result().engine_ns


def test_describe_loads_the_model_and_names_it(engine: Engine) -> None:
    assert engine.describe("plain").result(DEADLINE).name == "plain"


def test_models_are_kept_up_to_the_limit() -> None:
    engine = Engine(options(model_cache=ModelCacheOptions(most=1))).start()
    try:
        for model in ["plain", "sleep=0", "plain"]:
            engine.submit("a", tone(1), model).result(DEADLINE)
        loaded = engine.stats.load_ns
        engine.submit("a", tone(1), "plain").result(DEADLINE)
        assert engine.stats.load_ns == loaded, "it was kept"
        engine.submit("a", tone(1), "sleep=0").result(DEADLINE)
        assert engine.stats.load_ns > loaded, "it was put out by the other"
    finally:
        engine.close()


def test_forgetting_a_job_takes_out_what_waits(engine: Engine, gate: Path) -> None:
    model = f"gate={gate}"
    running = engine.submit("a", tone(1), model)
    reached(gate)
    waiting = [engine.submit("a", tone(1), model) for _ in range(5)]
    neighbour = engine.submit("b", tone(1), model)
    engine.forget("a")
    for future in waiting:
        with pytest.raises(JobCancelled):
            future.result(DEADLINE)
    assert not running.done()
    assert engine._slots.free == 22, "while the device is busy"
    gate.touch()
    assert running.result(DEADLINE).engine_ns + neighbour.result(DEADLINE).engine_ns == engine.busy_ns


def test_a_forgotten_job_is_not_sent_to_the_next_child(engine: Engine, gate: Path) -> None:
    futures = [engine.submit("a", tone(1), f"gate={gate}") for _ in range(4)]
    reached(gate)
    engine.forget("a")
    assert engine.child_pid is not None
    os.kill(engine.child_pid, signal.SIGKILL)
    for future in futures:
        with pytest.raises(JobCancelled):
            future.result(DEADLINE)
    assert not wait(futures, DEADLINE).not_done


def test_an_utterance_longer_than_a_slot_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match="cut it into chunks"):
        engine.submit("a", tone(7), "plain")
    assert engine._slots.free == 24


def test_closing_fails_what_is_open_and_refuses_the_rest(gate: Path) -> None:
    engine = Engine(options()).start()
    child = engine.child_pid
    assert child is not None
    open_future = engine.submit("a", tone(1), f"gate={gate}")
    reached(gate)
    engine.close()
    engine.close()
    with pytest.raises(EngineStopped):
        open_future.result(DEADLINE)
    with pytest.raises(EngineStopped):
        engine.submit("a", tone(1), "plain")
    assert not alive(child)


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        ("tests.worker.no_such_module:load", "No module named 'tests.worker.no_such_module'."),
        ("tests.worker.engine.models_for_a_gpu:load", "this machine has no GPU; take another."),
        # Without the file that it asks for this module raises what nobody foresees, each time anew.
        (
            "tests.worker.engine.fragile_models:load",
            "its process ended 4 times before it was ready (exit code 1).",
        ),
    ],
)
def test_an_engine_that_cannot_start_says_why(loader: str, reason: str) -> None:
    with pytest.raises(EngineStopped, match=f"^The engine did not start: {re.escape(reason)}$"):
        Engine(options(loader=loader, device="gpu")).start()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return sys.platform != "linux"
    return state != "Z"


PARENT = """
import sys, time
from tests.worker.engine.test_engine import options
from ops.testbed.fake_models import tone
from worker.engine.client import Engine

if __name__ == "__main__":
    engine = Engine(options()).start()
    engine.submit("a", tone(1), "plain").result(60)
    held = engine.submit("a", tone(1), "gate=" + sys.argv[1])
    loaded = sorted(name for name in sys.modules if name == "mlx" or name.startswith("mlx."))
    print(engine.child_pid, loaded, flush=True)
    if sys.argv[2] == "exit":
        sys.exit(0)
    time.sleep(600)
"""


@pytest.mark.parametrize("ending", ["kill -9", "exit"])
def test_the_child_dies_with_its_parent_which_never_loads_mlx(
    tmp_path: Path, gate: Path, ending: str
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(script), str(gate), ending],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the resource tracker complains about the shared memory that it removes
        text=True,
    )
    assert parent.stdout is not None
    pid, _, loaded = parent.stdout.readline().strip().partition(" ")
    if ending != "exit":
        reached(gate)
        parent.kill()
    parent.wait(DEADLINE)
    parent.stdout.close()
    assert loaded == "[]"
    until(lambda: not alive(int(pid)))


def test_samples_arrive_as_they_were_sent(engine: Engine) -> None:
    quiet, loud = tone(3, level=0.1), tone(3, level=0.8)
    futures = [engine.submit("a", samples, "plain") for samples in (quiet, loud, np.zeros(RATE, "f4"))]
    assert [[word.text for word in answer.words] for answer in results(futures)] == [
        ["level7"] * 3,
        ["level57"] * 3,
        [],
    ]
