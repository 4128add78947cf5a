"""What a job costs besides its decoding: thousands of one-second recordings through real workers.

    python -m ops.bench.queue.tiny_jobs --jobs 10000 --workers 1 [--source s3]

Workers with a model that computes nothing, over PostgreSQL, a Redis and a folder of their own; all jobs wait
before the first worker starts. Prints the seconds from the first claim to the last end, and the processor
time of workers and engines per job after the first ones, which says more on a busy machine. Recordings are
uploads in the folder, or with `--source s3` the object of a bucket, from an S3 server in this process.
"""

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import psutil
from sqlalchemy import func, select, text

import migrations
from ops.soak.objects import BUCKET, s3_server, s3_settings
from ops.testbed.postgres import PostgresServer
from ops.testbed.s3 import S3Server
from ops.testbed.stack import Stack
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.domain.jobs import Source
from spool.domain.options import JobOptions
from spool.store.jobs import NewJob, create_job
from spool.tables import jobs

LEASE_SECONDS = "60"
STALL_SECONDS = 300.0


def processor_seconds(pids: list[int]) -> float:
    """What these processes and their children have used."""
    processes = [psutil.Process(pid) for pid in pids]
    processes += [child for process in list(processes) for child in process.children(recursive=True)]
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


def submit_objects(stack: Stack, number: int, server: S3Server) -> None:
    """Jobs for an object of a bucket, which workers read with their own credentials."""
    server.client().upload_file(str(stack.record(1.0)), BUCKET, "reel.wav")
    settings = s3_settings(server.endpoint)
    del settings["SPOOL_OBJECTS"]
    stack.environment |= settings
    options = JobOptions(model="plain", speech_detector=False)
    for _ in range(number):
        with stack.db.begin() as tx:
            create_job(tx, NewJob(Source("s3", f"s3://{BUCKET}/reel.wav"), options, "reel.wav"))


def run(stack: Stack, number: int, workers: int, server: S3Server | None) -> bool:
    """Submit, work, print. Whether all jobs are done."""
    began = time.monotonic()
    if server is None:
        recording = stack.record(1.0)
        for _ in range(number):
            stack.submit_stored(recording)
    else:
        submit_objects(stack, number, server)
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
    parser.add_argument("--source", choices=("upload", "s3"), default="upload")
    args = parser.parse_args()
    home, redis_home = Path(tempfile.mkdtemp(prefix="spool-tiny-")), temporary_home()
    postgres = PostgresServer()
    try:
        postgres.start()
        url = postgres.create_database("tiny")
        migrations.upgrade(url)
        with (
            EmbeddedRedis(redis_home) as redis,
            s3_server() if args.source == "s3" else nullcontext() as server,
        ):
            stack = Stack(home, url, redis)
            stack.log = home / "log"
            try:
                return 0 if run(stack, args.jobs, args.workers, server) else 1
            finally:
                stack.close()
    finally:
        postgres.close()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(redis_home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
