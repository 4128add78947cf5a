"""Searches for the request that blocks an API process longest; measures what clients that never read cost.

    OMP_NUM_THREADS=1 python -m ops.fuzz.worst_request --seconds 240 --seed 1 --readers 2000

A real API process on SQLite gets bodies of every kind that its routes parse; meanwhile `/healthz` is asked
all the time on another connection. The requests that delayed it most are mutated and tried again; each counts
as the shortest of three tries, since a busy machine delays too. Then eight clients send the worst ones at
once for ten seconds. Last, `--readers` clients ask for a recording and read nothing of it. Exits with 1 if
`/healthz` took longer than 100 ms (99th percentile).
"""

import argparse
import asyncio
import json
import random
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

import migrations
from ops.fuzz.attacks import KINDS, ROUTES, SHAPES, Attack, draw, mutate, request
from ops.fuzz.prober import Prober, describe, length_of, percentile
from ops.testbed.waiting import until
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.domain.api_keys import Scope
from spool.store import Database
from spool.store.api_keys import create_key

MOST_SECONDS = 0.1
WATCH_SECONDS = 75
"""How long slow readers are watched: the API gives up those that take nothing for 30 s."""
MOST_REFUSED = 0.05
"""The share of another key's requests that may be told to come again meanwhile."""
TRIES = 3
KEPT, WORST = 12, 8
"""How many of the worst requests are mutated, and how many are sent at once in the end."""
TOGETHER_SECONDS = 10.0
LISTEN_SECONDS = 5.0
SETTLE_SECONDS = 0.03


@dataclass(frozen=True)
class Target:
    """A running API, with the keys of two callers."""

    host: str
    port: int
    key: str
    other_key: str
    process: psutil.Process

    async def send(self, data: bytes) -> int:
        """Send it and read the answer; its status, 0 where there was none."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(data)
            async with asyncio.timeout(120):
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(length_of(head))
            return int(head.split(b" ", 2)[1])
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            return 0
        finally:
            writer.close()

    async def upload(self) -> str:
        """The path of a recording of 20 MiB."""
        head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        body = head + b"RIFF" + b"\0" * (20 << 20) + b"\r\n--b--\r\n"
        reader, writer = await asyncio.open_connection(self.host, self.port)
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        writer.write(request("POST", "/v1/jobs", self.key, body, kind))
        answer = await reader.readuntil(b"\r\n\r\n")
        document = json.loads(await reader.readexactly(length_of(answer)))
        writer.close()
        return f"/v1/jobs/{document['id']}/audio"


class Search:
    """Looks for the request that delays `/healthz` most."""

    def __init__(self, target: Target, prober: Prober, seed: int) -> None:
        self._target = target
        self._prober = prober
        self._dice = random.Random(seed)
        self._found: dict[Attack, float] = {}
        self._statuses: Counter[int] = Counter()
        self._first = [
            Attack(route, kind, (shape,), 10_000)
            for shape in SHAPES
            for route in ROUTES[:2]
            for kind in KINDS
        ]
        self._dice.shuffle(self._first)

    async def run(self, seconds: float) -> bool:
        """Search, then send the worst at once; print both. Whether `/healthz` kept within its limit."""
        begun = time.monotonic()
        while time.monotonic() < begun + seconds:
            attack = self._choose()
            if attack not in self._found:
                self._found[attack] = await self._measure(attack)
        answers = dict(sorted(self._statuses.items()))
        print(f"{len(self._found)} requests, answers {answers}")
        print(f"/healthz meanwhile: {describe(self._prober.since(begun))}")
        alone = percentile(self._prober.since(begun), 0.99)
        for attack in self._worst(WORST):
            print(f"  {1000 * self._found[attack]:6.0f} ms  {attack}")
        return max(alone, await self._send_together()) <= 1000 * MOST_SECONDS

    def _choose(self) -> Attack:
        """One of the first requests, a mutation of one of the worst, or any other."""
        if self._first:
            return self._first.pop()
        if self._dice.random() < 0.7:
            return mutate(self._dice.choice(self._worst(KEPT)), self._dice)
        return draw(self._dice)

    def _worst(self, count: int) -> list[Attack]:
        return sorted(self._found, key=self._found.__getitem__, reverse=True)[:count]

    async def _measure(self, attack: Attack) -> float:
        """The longest answer of `/healthz` (s) while the request was under way, in the best of some tries."""
        shortest = float("inf")
        for _ in range(TRIES):
            data, began = attack.bytes(self._target.key), time.monotonic()
            self._statuses[await self._target.send(data)] += 1
            await asyncio.sleep(SETTLE_SECONDS)
            shortest = min(shortest, max(self._prober.since(began), default=0.0))
            if shortest < MOST_SECONDS / 2:
                break
        return shortest

    async def _send_together(self) -> float:
        """Send the worst requests at once for some seconds; the 99th percentile of `/healthz` (ms)."""
        begun, statuses = time.monotonic(), Counter[int]()

        async def repeat(data: bytes) -> None:
            while time.monotonic() < begun + TOGETHER_SECONDS:
                statuses[await self._target.send(data)] += 1

        await asyncio.gather(*(repeat(each.bytes(self._target.key)) for each in self._worst(WORST)))
        took = self._prober.since(begun)
        print(
            f"the eight at once for {TOGETHER_SECONDS:.0f} s: {statuses.total()} answers "
            f"{dict(sorted(statuses.items()))}; /healthz {describe(took)}"
        )
        return percentile(took, 0.99)


async def search(target: Target, seconds: float, seed: int) -> bool:
    """Look for the worst request. Whether `/healthz` kept within its limit."""
    with Prober(target.host, target.port) as prober:
        await asyncio.sleep(1)  # its process starts
        idle = time.monotonic()
        await asyncio.sleep(LISTEN_SECONDS)
        print(f"idle: /healthz {describe(prober.since(idle))}")
        return await Search(target, prober, seed).run(seconds)


async def never_read(target: Target, path: str, number: int) -> bool:
    """Let `number` clients ask for `path` and read nothing; print what it costs. Whether `/healthz` and
    another key's requests were answered in time."""
    process, others = target.process, Counter[int]()
    before = largest = process.memory_info().rss
    with Prober(target.host, target.port) as prober:
        clients = [await _ask_without_reading(target, path) for _ in range(number)]
        began = time.monotonic()
        while time.monotonic() < began + WATCH_SECONDS:
            others[await target.send(request("GET", "/v1/jobs?limit=1", target.other_key))] += 1
            await asyncio.sleep(0.5)
            largest = max(largest, process.memory_info().rss)
        took = prober.since(began)
        connections = process.net_connections()
        left = sum(one.status == "ESTABLISHED" and one.laddr.port == target.port for one in connections)
        for _, writer in clients:
            writer.transport.abort()
    print(
        f"{number} clients that never read: memory {before >> 20} to {largest >> 20} MiB; "
        f"after {WATCH_SECONDS} s {left} connections are open; "
        f"another key's requests were answered {dict(others)}; /healthz {describe(took)}"
    )
    refused = 1 - others[200] / others.total()
    return percentile(took, 0.99) <= 1000 * MOST_SECONDS and refused <= MOST_REFUSED


async def _ask_without_reading(
    target: Target, path: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(target.host, target.port, limit=1)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(request("GET", path, target.key))
    return reader, writer  # the reader too, or its connection is closed


@contextmanager
def running_api() -> Iterator[Target]:
    """An API process on SQLite, with its own home and Redis."""
    home, redis_home = Path(tempfile.mkdtemp(prefix="spool-worst-")), temporary_home()
    keys, announced = _create_keys(f"sqlite:///{home / 'spool.db'}"), home / "api.json"
    command = ("-m", "api.cli.main", "serve", "--port", "0", "--announce", str(announced))
    with EmbeddedRedis(redis_home) as redis, (home / "log").open("wb") as log:
        environment = {
            "PATH": "/usr/bin:/bin",
            "SPOOL_HOME": str(home),
            "SPOOL_REDIS_URL": redis.url,
            "SPOOL_API_TOKEN": secrets.token_hex(16),
            "SPOOL_RATE_LIMIT": "0",
            "SPOOL_SOURCE_ROOTS": "/nowhere",
            "OMP_NUM_THREADS": "1",
        }
        process = subprocess.Popen(
            [sys.executable, *command], env=environment, cwd=Path(__file__).parents[2], stdout=log, stderr=log
        )
        try:
            until(announced.exists, "the API listens")
            address = urlsplit(json.loads(announced.read_text())["url"])
            facts = psutil.Process(process.pid)
            yield Target(str(address.hostname), int(address.port or 0), *keys, facts)
        finally:
            process.terminate()
            process.wait(60)
            shutil.rmtree(home, ignore_errors=True)
            shutil.rmtree(redis_home, ignore_errors=True)


def _create_keys(url: str) -> tuple[str, str]:
    migrations.upgrade(url)
    database = Database(url)
    with database.begin() as tx:
        one, other = (create_key(tx, name, "p", [Scope.READ, Scope.SUBMIT]).text for name in ("one", "other"))
    database.close()
    return one, other


def main() -> int:
    """Start an API, attack it, and say by the exit code whether it held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to search")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--readers", type=int, default=2000, help="clients that never read")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * args.readers + 500)), hard))
    with running_api() as target:
        held = asyncio.run(search(target, args.seconds, args.seed))
        if args.readers:
            path = asyncio.run(target.upload())
            held &= asyncio.run(never_read(target, path, args.readers))
    print("HELD" if held else f"DID NOT HOLD: /healthz took longer than {1000 * MOST_SECONDS:.0f} ms")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
