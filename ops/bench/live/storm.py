"""Thousands of clients that connect at once, and what a session that is open meanwhile notices.

    python -m ops.bench.live.storm MODEL AUDIO [--connects 10000] [--at-once 500] [--seconds 20]

One session speaks through all of Spool (as `python -m ops.bench.live --through stack`) for some seconds
alone and then during the storm. Each client of the storm asks for a session with a key of another project,
and, where it gets one, sends a second of audio and vanishes without a word. Prints a line of JSON:

    {"connects", "seconds", "outcomes": {what was answered: how many},
     "alone": {"partial_ms", "final_ms", "words"}, "during": {…}, "session": the state of its job,
     "open_files" and "memory_mb" of the API: [before, after], "unfinished": jobs that never ended}

Exits 1 where a client got no answer, the session was disturbed or a job did not end.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from ops.bench.live.run import Run, Samples, read_samples
from ops.bench.live.stack import Window, live_fleet, open_client
from ops.testbed.live.fleet import LiveFleet
from ops.testbed.waiting import until
from spool.domain.api_keys import Scope
from spool.domain.jobs import JobState
from spool.store.api_keys import create_key
from spool.store.jobs import JobFilter, list_jobs
from worker.audio import SAMPLE_RATE

SETTLED_SECONDS = 5.0
OPEN_SECONDS = 120.0
"""After which a client has got no answer."""


async def _storm(fleet: LiveFleet, key: str, connects: int, at_once: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    gate = asyncio.Semaphore(at_once)
    address = fleet.address(endpointing="1000", head="auto")

    async def one() -> None:
        async with gate:
            outcomes[await _connected(address, key)] += 1

    await asyncio.gather(*(one() for _ in range(connects)))
    return outcomes


async def _connected(address: str, key: str) -> str:
    """Ask for a session; what came of it."""
    headers = {"Authorization": f"Token {key}"}
    try:
        socket = await connect(address, additional_headers=headers, proxy=None, open_timeout=OPEN_SECONDS)
    except InvalidStatus as refusal:
        body = json.loads(refusal.response.body)
        after = refusal.response.headers.get("Retry-After")
        return f"{refusal.response.status_code} {body['code']}: {body['detail']} Retry-After: {after}"
    except (OSError, TimeoutError) as error:
        return f"no answer: {type(error).__name__}: {error}"
    await socket.send(b"\0" * 2 * SAMPLE_RATE)
    socket.transport.abort()
    return "opened"


async def _measure(fleet: LiveFleet, samples: Samples, key: str, asked: argparse.Namespace) -> dict[str, Any]:
    api = psutil.Process(fleet.api.pid)
    run = Run([1], asked.seconds, False, (70, 1), asked.head, False, "cpu")
    window = Window(float("inf"), time.monotonic())
    client = await open_client(fleet, run, samples)
    assert client is not None
    speaking = asyncio.create_task(client.run(window))
    while not client.is_heard:
        await asyncio.sleep(0.2)
    await asyncio.sleep(SETTLED_SECONDS)
    before = api.num_fds(), api.memory_info().rss
    alone = Window(asked.seconds, time.monotonic())
    await asyncio.sleep(asked.seconds)
    during = Window(float("inf"), time.monotonic())
    outcomes = await _storm(fleet, key, asked.connects, asked.at_once)
    during.stop()
    window.stop()
    await speaking
    await asyncio.to_thread(until, lambda: not _unfinished(fleet), "the jobs of the storm", 120)
    return {
        "connects": asked.connects,
        "seconds": round(during.seconds, 1),
        "outcomes": dict(outcomes),
        "alone": alone.summary([client]),
        "during": during.summary([client]),
        "session": fleet.job(client.job_id).state.value,
        "open_files": [before[0], api.num_fds()],
        "memory_mb": [round(each / 1e6) for each in (before[1], api.memory_info().rss)],
        "unfinished": _unfinished(fleet),
    }


def _unfinished(fleet: LiveFleet) -> int:
    states = (JobState.QUEUED, JobState.RUNNING)
    with fleet.db.read() as tx:
        return sum(len(list_jobs(tx, JobFilter(state=state)).items) for state in states)


def main(arguments: Sequence[str] | None = None) -> int:
    """Let them come, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("audio", type=Path)
    parser.add_argument("--connects", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--head", default="auto")
    asked = parser.parse_args(arguments)
    limits = {"SPOOL_LIVE_SESSIONS": "64", "SPOOL_LIVE_SESSIONS_PER_KEY": "32"}
    with live_fleet(asked.model, environment=limits) as fleet:
        with fleet.db.begin() as tx:
            key = create_key(tx, "storm", "storm", (Scope.SUBMIT,)).text
        line = asyncio.run(_measure(fleet, read_samples(asked.audio), key, asked))
    sys.stdout.write(json.dumps(line) + "\n")
    is_bad = any(outcome.startswith("no answer") for outcome in line["outcomes"])
    return int(is_bad or line["session"] != "done" or line["unfinished"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
