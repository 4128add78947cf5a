"""How long a cancel takes on a loaded machine: from the request to the job's ending.

    python -m ops.bench.queue.cancel --cancels 10 --busy 4

A real worker with the demo model, an API, PostgreSQL and an embedded Redis. A batch of short jobs waits, two
long ones run, and processes that only compute take what processor they get. One long job after another is
cancelled over HTTP while it runs, at a random moment, and replaced. Prints the seconds of each.
"""

import argparse
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import httpx

import migrations
from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.postgres import PostgresServer
from ops.testbed.processes import REAL, ROOT
from ops.testbed.stack import HEADERS, Stack, until
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.domain.jobs import JobState, Source
from spool.domain.options import JobOptions
from spool.store.jobs import NewJob, create_job

MODEL = "demo-tdt"
MOST_SECONDS = 5.0
LONG_SECONDS = 1800.0
LONG_JOBS = 2


def compute() -> None:
    """Use a processor until the process is ended."""
    while True:
        pass


def cancel(stack: Stack, url: str, job_id: str) -> float:
    """The seconds from the request to cancel until the job has ended."""
    began = time.monotonic()
    answer = httpx.delete(f"{url}/v1/jobs/{job_id}", headers=HEADERS, timeout=120)
    answer.raise_for_status()
    until(lambda: stack.ended([job_id]), "the job ended")
    took = time.monotonic() - began
    assert stack.job(job_id).state is JobState.CANCELLED
    return took


def submit_urgent(stack: Stack, recording: Path) -> str:
    """Submit a job that goes before the batch."""
    source = Source("file", recording.as_uri(), recording.stat().st_size)
    options = JobOptions(model=MODEL, speech_detector=False)
    with stack.db.begin() as tx:
        return create_job(tx, NewJob(source, options, recording.name, priority=0))[0].id


def run(stack: Stack, number: int, cancels: int, dice: random.Random) -> bool:
    """Submit, cancel, print. Whether each job had ended within 5 s."""
    short = write_wav(stack.home / "short.wav", speechlike(5))
    long = write_wav(stack.home / "long.wav", speechlike(LONG_SECONDS))
    running = [submit_urgent(stack, long) for _ in range(LONG_JOBS)]
    stack.submit_together([short] * number, MODEL)
    url = stack.serve()
    stack.start(*REAL)
    waits = []
    for _ in range(cancels):
        until(lambda: all(stack.chunks(job_id) for job_id in running), "both long jobs run")
        time.sleep(dice.uniform(0, 5))
        job_id = running.pop(0)
        waits.append(cancel(stack, url, job_id))
        print(f"cancelled after {waits[-1]:.2f} s", flush=True)
        running.append(submit_urgent(stack, long))
    print(f"worst of {cancels}: {max(waits):.2f} s, middle {sorted(waits)[cancels // 2]:.2f} s")
    return max(waits) <= MOST_SECONDS


def main() -> int:
    """Exit code 1 where a job took longer than 5 s to end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=300, help="short jobs that wait")
    parser.add_argument("--cancels", type=int, default=10)
    parser.add_argument("--busy", type=int, default=4, help="processes that only compute")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with ExitStack() as stop:
        home, redis_home = Path(tempfile.mkdtemp(prefix="spool-cancel-")), temporary_home()
        for folder in (home, redis_home):
            stop.callback(shutil.rmtree, folder, ignore_errors=True)
        redis = stop.enter_context(EmbeddedRedis(redis_home))
        postgres = PostgresServer()
        stop.callback(postgres.close)
        postgres.start()
        url = postgres.create_database("cancel")
        migrations.upgrade(url)
        models = {MODEL: str(ROOT / "models" / "demo")}
        stack = Stack(home, url, redis, models=models, SPOOL_DEFAULT_MODEL=MODEL, SPOOL_MAX_BATCH="64")
        stop.callback(stack.close)
        for _ in range(args.busy):
            busy = multiprocessing.Process(target=compute, daemon=True)
            busy.start()
            stop.callback(busy.kill)
        return 0 if run(stack, args.jobs, args.cancels, random.Random(args.seed)) else 1


if __name__ == "__main__":
    sys.exit(main())
