"""What an engine leaves when its worker is killed, and who takes it: real processes, and the folder alone."""

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ops.testbed.processes import alive
from ops.testbed.waiting import until
from spool.domain import Hypothesis, Recognition, Word
from spool.errors import JobCancelled
from tests.worker.engine.test_engine import DEADLINE, ROOT, reached
from worker.engine import MOST_AGE, HandedOver, HandoverFolder

JOB = "job_a/1"
NEXT = "job_a.1.answers"


def answer(text: str = "hello", score: float = -1.2345678901234567) -> Recognition:
    best = Hypothesis((3, 4), score, (0, 7), (1, 1), (0.25, 1.0))
    word = Word(text=text, start=0.1, end=0.3, confidence=0.9)
    return Recognition((best,), (word,), 12, makers=("abc", None), engine_ns=34_567_890_123, batch_size=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "handover"
    path.mkdir()
    return path


@pytest.fixture
def folder(path: Path) -> HandoverFolder:
    return HandoverFolder(path)


def test_what_is_left_is_taken_once_and_to_the_bit(folder: HandoverFolder, path: Path) -> None:
    left = HandedOver("wrk_1", {"a": answer(), "b": answer("\u00e9\u4e2d", -0.1)})
    folder.put(JOB, left)
    assert stat.S_IMODE((path / NEXT).stat().st_mode) == 0o600
    assert folder.take("job_a/2") is None
    assert folder.take(JOB) == left
    assert folder.take(JOB) is None
    assert not list(path.iterdir())


def test_two_workers_cannot_both_take_it(folder: HandoverFolder) -> None:
    for _ in range(20):
        folder.put(JOB, HandedOver("wrk_1", {"a": answer()}))
        start = threading.Barrier(4)
        taken: list[object] = []

        def take(start: threading.Barrier = start, taken: list[object] = taken) -> None:
            start.wait()
            taken.append(folder.take(JOB))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(each is not None for each in taken) == 1


@pytest.mark.parametrize("damage", ["short", "flipped", "foreign", "empty"])
def test_damaged_answers_are_dropped(folder: HandoverFolder, path: Path, damage: str) -> None:
    folder.put(JOB, HandedOver("wrk_1", {"a": answer()}))
    data = (path / NEXT).read_bytes()
    flipped = bytes([*data[:-9], data[-9] ^ 1, *data[-8:]])
    bad = {"short": data[:-5], "flipped": flipped, "foreign": b"\x80\x04N.", "empty": b""}[damage]
    (path / NEXT).write_bytes(bad)
    assert folder.take(JOB) is None
    assert not list(path.iterdir())


def test_old_answers_are_neither_taken_nor_kept(folder: HandoverFolder, path: Path) -> None:
    old = time.time() - MOST_AGE - 5
    for job in (JOB, "job_b/1", "job_c/1"):
        folder.put(job, HandedOver("wrk_1", {"a": answer()}))
        if job != "job_c/1":
            os.utime(path / f"{job.replace('/', '.')}.answers", (old, old))
    assert folder.take(JOB) is None
    folder.sweep()
    assert [file.name for file in path.iterdir()] == ["job_c.1.answers"]


@pytest.mark.integration
def test_an_engine_that_still_finishes_is_waited_for(folder: HandoverFolder, path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from worker.engine.handover import HandoverFolder; "
        "HandoverFolder(Path(sys.argv[1])).hold(); print('held', flush=True); sys.stdin.read()"
    )
    folder.wait()
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    checks: list[int] = []

    def cancel() -> None:
        checks.append(1)
        if len(checks) == 2:
            raise JobCancelled

    with pytest.raises(JobCancelled):
        folder.wait(cancel)
    waiting = threading.Thread(target=folder.wait)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    holder.communicate()
    waiting.join(DEADLINE)
    assert not waiting.is_alive()
    assert not list(path.iterdir()), "a lock that nobody holds is removed"


PARENT = """
import sys, time
from pathlib import Path
from tests.worker.engine.test_engine import options
from ops.testbed.fake_models import tone
from worker.engine.client import Engine

if __name__ == "__main__":
    gate, folder = sys.argv[1:]
    engine = Engine(options(handover=Path(folder), worker_id="wrk_1")).start()

    def submit(job, mark, model="plain"):
        return engine.submit(job, tone(1), model, mark=mark)

    done = ("a/1", "saved"), ("a/1", "unsaved"), ("b/2", "saved"), ("c/1", "")
    answers = [submit(*each) for each in done]
    for future in answers:
        future.result(60)
    for job in ("a/1", "b/2"):
        engine.settle(job, "saved")
    running = submit("a/1", "running", "gate=" + gate)
    while not Path(gate).with_suffix(".reached").exists():
        time.sleep(0.01)
    waiting = [submit("a/1", f"waiting {n}", "gate=" + gate) for n in range(9)]
    print(engine.child_pid, answers[1].result().engine_ns, flush=True)
    time.sleep(600)
"""


@pytest.mark.integration
def test_an_engine_leaves_what_its_killed_worker_had_not_settled(tmp_path: Path) -> None:
    script, gate, path = tmp_path / "parent.py", tmp_path / "gate", tmp_path / "handover"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(script), str(gate), str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    pid, engine_ns = map(int, parent.stdout.readline().split())
    reached(gate)
    parent.kill()
    parent.wait(DEADLINE)
    parent.stdout.close()
    until(lambda: list(path.glob("*.lock")))
    assert alive(pid), "it finishes the batch on the device"
    gate.touch()
    until(lambda: not alive(pid))
    folder = HandoverFolder(path)
    folder.wait()
    left = folder.take("a/1")
    assert left is not None
    assert left.worker_id == "wrk_1"
    assert set(left.answers) == {"unsaved", "running"}, (
        "what was settled is not left, what waited never began"
    )
    assert left.answers["unsaved"].engine_ns == engine_ns
    assert not list(path.iterdir()), "nothing of a job whose answers were all settled, or had no mark"
