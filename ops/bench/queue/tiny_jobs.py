"""What a job costs besides its decoding: thousands of one-second recordings through real workers.

    python -m ops.bench.queue.tiny_jobs --jobs 10000 --workers 1

Workers with a model that computes nothing, over PostgreSQL, a Redis and a folder of their own; all jobs wait
before the first worker starts. Prints the seconds from the first claim to the last end, and the processor
time of workers and engines per job after the first ones, which says more on a busy machine.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import psutil
from sqlalchemy import func, select, text

import migrations
from ops.testbed.postgres import PostgresServer
from ops.testbed.stack import Stack
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.tables import jobs

LEASE_SECONDS = "60"
STALL_SECONDS = 300.0


def processor_seconds(pids: list[int]) -> float:
    """What these processes and their children have used."""
    processes = [psutil.Process(pid) for pid in pids]
    processes += [child for process in list(processes) for child in process.children(recursive=True)]
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


def run(stack: Stack, number: int, workers: int) -> bool:
    """Submit, work, print. Whether all jobs are done."""
    recording = stack.record(1.0)
    began = time.monotonic()
    for _ in range(number):
        stack.submit_stored(recording)
    print(f"{number} jobs submitted in {time.monotonic() - began:.0f} s", flush=True)

    def count(state: str) -> int:
        with stack.db.read() as tx:
            return int(tx.scalar(select(func.count()).where(jobs.c.state == state)) or 0)

    pids = [stack.launch(f"worker-{name}", SPOOL_LEASE_SECONDS=LEASE_SECONDS).pid for name in range(workers)]
    done, changed, warm, before = 0, time.monotonic(), 0, 0.0
    while done < number and time.monotonic() - changed < STALL_SECONDS:
        time.sleep(0.25)
        if (now := count("done")) != done:
            done, changed = now, time.monotonic()
            if not warm:
                warm, before = done, processor_seconds(pids)
    used = processor_seconds(pids)
    with stack.db.read() as tx:
        query = "SELECT extract(epoch FROM max(finished_at) - min(started_at)) FROM jobs"
        seconds = float(tx.scalar(text(query)) or 0.0)
    print(
        f"{done} done by {workers} workers in {seconds:.1f} s: {done / seconds:.1f} a second, "
        f"{1000 * (used - before) / max(done - warm, 1):.1f} ms of processor a job after the first {warm}"
    )
    stack.stop_workers()
    return done == number


def main() -> int:
    """Exit code 1 where a job did not end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    home, redis_home = Path(tempfile.mkdtemp(prefix="spool-tiny-")), temporary_home()
    postgres = PostgresServer()
    try:
        postgres.start()
        url = postgres.create_database("tiny")
        migrations.upgrade(url)
        with EmbeddedRedis(redis_home) as redis:
            stack = Stack(home, url, redis)
            stack.log = home / "log"
            try:
                return 0 if run(stack, args.jobs, args.workers) else 1
            finally:
                stack.close()
    finally:
        postgres.close()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(redis_home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
