"""How long a request waits whose caller waits for it, behind a batch: the time to its first chunk.

    python -m ops.bench.queue.interactive --jobs 5000 --requests 10

A real worker with the demo model, an API, SQLite and an embedded Redis. When the batch is under way, requests
by OpenAI's route come one after another. Prints the seconds of each to the first delta, to the end and to its
claim, how many jobs of the batch waited, and how many of them were done meanwhile.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import httpx
from sqlalchemy import func, select

import migrations
from ops.testbed.processes import REAL, ROOT
from ops.testbed.stack import HEADERS, Stack, until
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.tables import jobs

RECORDING = ROOT / "samples" / "demo-tdt" / "digits" / "string-2.flac"
MODEL = "demo-tdt"


def count(stack: Stack, state: str) -> int:
    """The jobs in a state."""
    with stack.db.read() as tx:
        return int(tx.scalar(select(func.count()).where(jobs.c.state == state)) or 0)


def ask(url: str) -> tuple[str, float, float]:
    """One streamed request: its job's id, and the seconds to the first delta and to the end."""
    began, first = time.monotonic(), 0.0
    form = {
        "data": {"model": MODEL, "stream": "true"},
        "files": {"file": ("call.flac", RECORDING.read_bytes())},
    }
    address = f"{url}/v1/audio/transcriptions"
    with httpx.stream("POST", address, headers=HEADERS, timeout=900, **form) as answer:  # type: ignore[arg-type]
        job_id = answer.headers["X-Spool-Job"]
        for line in answer.iter_lines():
            if not first and "transcript.text.delta" in line:
                first = time.monotonic() - began
    return job_id, first, time.monotonic() - began


def run(stack: Stack, number: int, requests: int) -> bool:
    """Submit the batch, ask, print. Whether each request had its first chunk within 10 s."""
    recording = Path(shutil.copy(RECORDING, stack.home))
    stack.submit_together([recording] * number, MODEL)
    url = stack.serve()
    worker = stack.start(*REAL, state="")
    until(lambda: stack.is_ready(worker), "the worker ready")
    until(lambda: count(stack, "done") > min(50, number // 10), "the batch under way")
    waits = []
    for _ in range(requests):
        waiting, done = count(stack, "queued"), count(stack, "done")
        job_id, first, whole = ask(url)
        waits.append(first)
        job, passed = stack.job(job_id), count(stack, "done") - done - 1
        assert job.started_at is not None
        claimed = (job.started_at - job.created_at).total_seconds()
        print(
            f"first chunk after {first:.1f} s, end after {whole:.1f} s, claimed after {claimed:.1f} s; "
            f"{waiting} jobs queued, {passed} done meanwhile",
            flush=True,
        )
    print(f"worst of {requests}: {max(waits):.1f} s to the first chunk; {count(stack, 'done')} jobs done")
    return min(waits) > 0 and max(waits) <= 10


def main() -> int:
    """Exit code 1 where a request waited for more than 10 s."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--requests", type=int, default=10)
    args = parser.parse_args()
    home, redis_home = Path(tempfile.mkdtemp(prefix="spool-interactive-")), temporary_home()
    url = f"sqlite:///{home / 'spool.db'}"
    migrations.upgrade(url)
    models = {MODEL: str(ROOT / "models" / "demo")}
    try:
        with EmbeddedRedis(redis_home) as redis:
            stack = Stack(
                home,
                url,
                redis,
                models=models,
                SPOOL_DEFAULT_MODEL=MODEL,
                SPOOL_MAX_BATCH="64",
                SPOOL_LEASE_SECONDS="60",
            )
            stack.log = home / "log"
            try:
                return 0 if run(stack, args.jobs, args.requests) else 1
            finally:
                stack.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(redis_home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
