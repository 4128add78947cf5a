"""How much engine time a kill wastes: a worker is killed again and again within one long recording.

    python -m ops.bench.queue.kill_cost --pace 5 10 20 100 --kills 6
    python -m ops.bench.queue.kill_cost --model demo

A real worker over SQLite and a folder, with its engine in its own process. The models of `--pace` take a
second for so many seconds of audio and compute nothing, so the figures are those of devices of such speeds on
a busy machine too; `demo` is the demo model. kill -9 comes at random moments of the engine's work. *Lost* is
what the killed worker's engine worked until it ended and no bill has, so that the next worker repeats it.
Pauses between batches count as lost, so it is an upper bound. Exits with 1 above 5 s, or above what one
utterance takes if that is more: an utterance is decoded as a whole.
"""

import argparse
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import migrations
from ops.testbed.counting_model import Decoding, decodings
from ops.testbed.processes import ROOT, alive
from ops.testbed.stack import Stack, gone, until
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home

MOST_SECONDS = 5.0
PAUSES = 0.5
"""Seconds between an utterance and its commit, when it alone takes longer than `MOST_SECONDS`."""
RATE = 16_000
LEAST_WORK, MOST_WORK = 3.0, 20.0
"""When a kill comes, in seconds of the engine's work since the worker's start."""
MOST_LENGTH = 100.0
"""Seconds that an engine may need for the recording; a slow one gets less of it."""

LOG_LINES = 60
"""Of the workers' log, printed where something waited for never came."""


@dataclass(frozen=True)
class Killed:
    """One kill: how long the engine had worked until it ended, how long it worked on after the kill, and what
    was lost (s)."""

    worked: float
    after: float
    lost: float


def kill_often(stack: Stack, recording: Path, model: str, kills: int, dice: random.Random) -> list[Killed]:
    """Kill the worker `kills` times within one job, or until the job ends before the next kill."""
    job_id = stack.submit_stored(recording, model)
    killed: list[tuple[str, float, float]] = []
    for _ in range(kills):
        before = len(_given(stack))
        worker = stack.launch("victim")
        until(
            lambda before=before: len(_given(stack)) > before or stack.ended([job_id]),  # type: ignore[misc]
            "a batch on the device",
        )
        if stack.ended([job_id]):
            break
        first = _given(stack)[before]
        begun, worker_id = first.begun_ns / 1e9, stack.worker_row(worker).id
        time.sleep(max(0.0, begun + dice.uniform(LEAST_WORK, MOST_WORK) - time.monotonic()))
        ended = stack.ended([job_id])
        at = time.monotonic()
        worker.kill()
        gone(worker)
        until(lambda first=first: not alive(first.pid), "the engine ended")  # type: ignore[misc]
        if ended:
            break
        killed.append((worker_id, time.monotonic() - begun, time.monotonic() - at))
    stack.worker("survivor")
    until(lambda: stack.ended([job_id]), "the job ended")
    stack.assert_done([job_id])
    billed = {worker.id: worker.busy_ns / 1e9 for worker in stack.workers()}
    stack.stop_workers()
    assert stack.audit().clean
    return [Killed(worked, after, worked - billed[worker_id]) for worker_id, worked, after in killed]


def _given(stack: Stack) -> list[Decoding]:
    return decodings(stack.decoded_list.read_text())


@contextmanager
def one_machine(models: dict[str, str]) -> Iterator[Stack]:
    """A database, a broker and a folder; no worker yet."""
    home, redis_home = Path(tempfile.mkdtemp(prefix="spool-kill-")), temporary_home()
    url = f"sqlite:///{home / 'spool.db'}"
    migrations.upgrade(url)
    try:
        with EmbeddedRedis(redis_home) as redis:
            limits: dict[str, Any] = {
                "SPOOL_MAX_CRASHES": "100",
                "SPOOL_MAX_BATCH": "64",
                "SPOOL_LEASE_SECONDS": "3",
            }
            stack = Stack(home, url, redis, models=models, **limits)
            stack.log = home / "log"
            try:
                yield stack
            except AssertionError:
                print("\n".join(stack.log.read_text(errors="replace").splitlines()[-LOG_LINES:]), flush=True)
                raise
            finally:
                stack.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(redis_home, ignore_errors=True)


def main() -> int:
    """Kill, print a line a model, and say by the exit code whether no kill lost more than it may."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pace", type=float, nargs="*", default=[5.0, 10.0, 20.0, 100.0])
    parser.add_argument("--model", choices=("paced", "demo"), default="paced")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=20.0, help="length of the recording")
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    args = parser.parse_args()
    dice, held = random.Random(args.seed), True
    models = {f"pace-{pace:g}": (f"pace={pace}", pace) for pace in args.pace}
    if args.model == "demo":
        models = {"demo": (str(ROOT / "models" / "demo"), math.inf)}
    print(f"seed {args.seed}; lost engine time, s")
    for name, (model, pace) in models.items():
        with one_machine({name: model}) as stack:
            recording = stack.record(min(60 * args.minutes, pace * MOST_LENGTH))
            killed = kill_often(stack, recording, name, args.kills, dice)
            given = _given(stack)
            repeated = len(given) - len({one.digest for one in given})
        lost = [one.lost for one in killed]
        utterance = max(one.samples for one in given) / RATE / pace
        most = max(MOST_SECONDS, utterance + PAUSES)
        held = held and max(lost, default=0.0) <= most
        each = ", ".join(f"{one.lost:.1f} of {one.worked:.1f} (+{one.after:.1f})" for one in killed)
        print(f"{name}: {len(killed)} kills, most {max(lost, default=0):.1f}: {each}")
        print(f"  {most:.1f} s may be lost, as one utterance takes up to {utterance:.1f} s")
        print(f"  {repeated} of {len(given)} decodings were repeats", flush=True)
    print("HELD" if held else "DID NOT HOLD")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
