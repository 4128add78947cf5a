"""How long a manifest of many lines takes through the real API, PostgreSQL and Redis of their own.

    python -m ops.bench.queue.manifests --lines 100000

Starts a PostgreSQL of the tests' kind (which does not wait for the disk), an embedded Redis and the API
behind a socket; sends the manifest as a stream; prints seconds, the longest queue that Redis had meanwhile,
the process's peak memory, and what looking at the batch and fetching its results takes. No worker runs.
"""

import argparse
import json
import os
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import structlog

import migrations
from ops.testbed.postgres import PostgresServer
from ops.testbed.running_api import Live, start
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.settings import Settings, load_settings


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=100_000)
    lines = parser.parse_args().lines
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    folder = Path(tempfile.mkdtemp(prefix="spool-bench-"))
    home, server = temporary_home(), PostgresServer()
    try:
        server.start()
        url = server.create_database("bench")
        migrations.upgrade(url)
        with EmbeddedRedis(home) as redis:
            settings = load_settings({}, home=folder, database_url=url, redis_url=redis.url)
            print(json.dumps(measured(settings, lines), indent=2))
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)


def measured(settings: Settings, lines: int) -> dict[str, object]:
    """Submit, look, fetch."""
    running = start(settings)
    longest = Longest(running.live)
    try:
        with httpx.Client(base_url=running.live.url, timeout=600) as http:
            longest.start()
            before, began, busy = _peak_mb(), time.perf_counter(), time.process_time()
            headers = {"Content-Type": "application/x-ndjson"}
            batch = http.post("/v1/batches", content=manifest(lines), headers=headers).json()
            submitted, busy = time.perf_counter() - began, time.process_time() - busy
            after = _peak_mb()
            longest.ended.set()
            longest.join()
            began = time.perf_counter()
            counts = http.get(f"/v1/batches/{batch['id']}").json()["counts"]
            looked = time.perf_counter() - began
            began = time.perf_counter()
            with http.stream("GET", f"/v1/batches/{batch['id']}/results") as answer:
                fetched_lines = sum(1 for _ in answer.iter_lines())
            fetched = time.perf_counter() - began
    finally:
        running.close()
    return {
        "lines": batch["lines"],
        "counts": counts,
        "submit_seconds": round(submitted, 1),
        "of_which_this_process_computed": round(busy, 1),
        "machine_load": [round(load, 1) for load in os.getloadavg()],
        "longest_queue": longest.most,
        "peak_mb_before_and_after": [before, after],
        "look_seconds": round(looked, 2),
        "results_lines": fetched_lines,
        "results_seconds": round(fetched, 1),
    }


class Longest(threading.Thread):
    """Watches how long the queue in Redis gets."""

    def __init__(self, live: Live) -> None:
        super().__init__(daemon=True)
        self._live = live
        self.ended = threading.Event()
        self.most = 0

    def run(self) -> None:
        """Ask ten times a second."""
        while not self.ended.wait(0.1):
            self.most = max(self.most, self._live.waiting())


def manifest(lines: int) -> Iterator[bytes]:
    """The manifest, a block at a time."""
    for first in range(0, lines, 1000):
        yield b"".join(_line(number) for number in range(first, min(first + 1000, lines)))


def _line(number: int) -> bytes:
    entry = {
        "source": f"s3://archive/1974/reel-{number:06}.flac",
        "custom_id": f"reel-{number}",
        "tags": {"box": str(number // 100)},
    }
    return json.dumps(entry).encode() + b"\n"


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
