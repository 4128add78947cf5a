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
import multiprocessing
import random
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

import psutil

import migrations
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
ROUTES = ("/v1/jobs", "/v1/batches", "/v1/webhooks", "/v1/audio/transcriptions")
SIZES = (1, 10, 100, 1_000, 10_000, 60_000, 100_000, 400_000, 2_000_000)
LARGEST = 8 << 20
READ_PATHS = ("/v1/jobs", "/v1/batches", "/v1/costs", "/v1/workers", "/v1/overview", "/metrics", "/v1/models")


def _nested(number: int) -> bytes:
    return b'{"options":' * min(number, 200_000) + b"1" + b"}" * min(number, 200_000)


SHAPES: dict[str, Callable[[int], bytes]] = {
    "unknown keys": lambda n: json.dumps({f"k{i}": i for i in range(n)}).encode(),
    "the same key": lambda n: b'{"source":1' + b',"source":1' * n + b"}",
    "unknown options": lambda n: json.dumps({"options": {f"k{i}": [i] for i in range(n)}}).encode(),
    "tags": lambda n: json.dumps({"source": "file:///a", "tags": {f"k{i}": "v" for i in range(n)}}).encode(),
    "wrong tags": lambda n: json.dumps({"tags": {f"k{i}": {} for i in range(n)}}).encode(),
    "phrases": lambda n: _phrases(f"phrase {i}" for i in range(n)),
    "one long phrase": lambda n: _phrases(["é" * n]),
    "phrases of control characters": lambda n: _phrases("\x01" * 20 for _ in range(n)),
    "numbers as phrases": lambda n: _phrases(range(n)),
    "a long source": lambda n: json.dumps({"source": "https://" + "a." * n}).encode(),
    "a source of percent signs": lambda n: json.dumps({"source": "https://a/" + "%41" * n}).encode(),
    "events": lambda n: json.dumps({"url": "https://a", "events": ["job.done"] * n}).encode(),
    "wrong events": lambda n: json.dumps({"url": "https://a", "events": [str(i) for i in range(n)]}).encode(),
    "empty lists": lambda n: b'{"options":[' + b"[]," * n + b"[]]}",
    "escapes": lambda n: b'{"source":"' + b"\\u00e9" * n + b'"}',
    "half a surrogate": lambda n: b'{"source":"' + b"\\ud800" * n + b'"}',
    "long numbers": lambda n: b'{"priority":' + b"9" * n + b"}",
    "many floats": lambda n: b'{"options":{"a":[' + b"1e308," * n + b"0]}}",
    "nested objects": _nested,
    "nested lists": lambda n: b"[" * n,
    "spaces": lambda n: b" " * n + b"{}",
    "no JSON": lambda n: b"x" * n,
    "bad lines": lambda n: b'{"source": 1}\n' * n,
    "good lines": lambda n: b"".join(b'{"source":"file:///nowhere/%d"}\n' % i for i in range(n)),
    "empty lines": lambda n: b"\n" * n,
    "one long line": lambda n: b'{"source":"' + b"a" * n + b'"}\n',
    "parts": lambda n: b"".join(_part(f"p{i}") for i in range(n)) + b"--b--\r\n",
    "headers of a part": lambda n: b"--b\r\n" + b"X-A: b\r\n" * n + b"\r\n\r\n--b--\r\n",
    "a long field": lambda n: _part("request", b"{" * n) + b"--b--\r\n",
    "boundaries": lambda n: b"--b\r\n" * n,
}
KINDS = ("application/json", "application/x-ndjson", "multipart/form-data; boundary=b")


def _phrases(phrases: object) -> bytes:
    boost = {"phrases": list(phrases)}  # type: ignore[call-overload]
    return json.dumps({"source": "file:///a", "options": {"decoder": "beam", "boost": boost}}).encode()


def _part(name: str, value: bytes = b"1") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
    return head.encode() + value + b"\r\n"


@dataclass(frozen=True)
class Attack:
    """One request: a body of `size` things of a `shape` (two for a mixture), or a query for `GET`."""

    route: str
    kind: str
    shapes: tuple[str, ...]
    size: int

    def bytes(self, key: str) -> bytes:
        if self.kind == "query":
            query = "&".join(f"tag={shape[:3]}{i}" for shape in self.shapes for i in range(self.size))[
                :60_000
            ]
            return _request("GET", f"{self.route}?{query}", key)
        body = b"".join(SHAPES[shape](self.size) for shape in self.shapes)[:LARGEST]
        return _request("POST", self.route, key, body, {"Content-Type": self.kind})

    def __str__(self) -> str:
        return f"{self.route} {self.kind.partition(';')[0]} {' + '.join(self.shapes)} x {self.size}"


def drawn(dice: random.Random) -> Attack:
    """Any request."""
    if dice.random() < 0.1:
        return Attack(dice.choice(READ_PATHS), "query", (dice.choice(list(SHAPES)),), dice.choice(SIZES))
    shapes = tuple(dice.sample(list(SHAPES), dice.choice((1, 1, 1, 2))))
    return Attack(dice.choice(ROUTES), dice.choice(KINDS), shapes, dice.choice(SIZES))


def mutated(attack: Attack, dice: random.Random) -> Attack:
    """The attack with one thing changed."""
    other = drawn(dice)
    if attack.kind == "query" or dice.random() < 0.5:
        size = max(1, round(attack.size * dice.choice((0.5, 0.8, 1.25, 2, 5))))
        return Attack(attack.route, attack.kind, attack.shapes, min(size, SIZES[-1]))
    if other.kind == "query":
        return attack
    which = dice.choice(("route", "kind", "shapes"))
    return Attack(**{**vars(attack), which: getattr(other, which)})


def _request(
    method: str, path: str, key: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> bytes:
    lines = {"Host": "localhost", "Authorization": f"Bearer {key}", **(headers or {})}
    if method != "GET":
        lines |= {"Content-Length": str(len(body)), "Idempotency-Key": secrets.token_hex(8)}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


class Prober:
    """Asks for `/healthz` again and again on one connection, in a process of its own: the bodies that this
    one makes and sends would hold the prober as well as the API."""

    def __init__(self, host: str, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._answers, far = context.Pipe(duplex=False)
        self._process = context.Process(target=_probe, args=(host, port, far), daemon=True)
        self._seen: list[tuple[float, float]] = []

    def __enter__(self) -> "Prober":
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def since(self, began: float) -> list[float]:
        """How long each answer took (s) that was waited for after `began`, a time of the monotonic clock."""
        while self._answers.poll():
            self._seen.append(self._answers.recv())
        return [took for at, took in self._seen if at + took >= began]


def _probe(host: str, port: int, answers: "Connection[tuple[float, float], None]") -> None:
    asking = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    while True:
        with suppress(OSError), socket.create_connection((host, port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection.makefile("rb") as stream:
                while True:
                    began = time.monotonic()
                    connection.sendall(asking)
                    head = b""
                    while not head.endswith(b"\r\n\r\n"):
                        line = stream.readline()
                        if not line:
                            raise ConnectionResetError
                        head += line
                    stream.read(_length(head))
                    answers.send((began, time.monotonic() - began))
                    time.sleep(0.005)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def send(host: str, port: int, data: bytes) -> int:
    """Send it and read the answer; its status, 0 where there was none."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data)
        async with asyncio.timeout(120):
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_length(head))
        return int(head.split(b" ", 2)[1])
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
        return 0
    finally:
        writer.close()


def percentile(seconds: list[float], share: float) -> float:
    """In milliseconds."""
    return 1000 * sorted(seconds)[min(int(share * len(seconds)), len(seconds) - 1)] if seconds else 0.0


def _spread(seconds: list[float]) -> str:
    p50, p99, longest = (percentile(seconds, share) for share in (0.5, 0.99, 1))
    return f"{len(seconds)} times, p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {longest:.0f} ms"


async def stall(host: str, port: int, prober: Prober, attack: Attack, key: str) -> tuple[float, int]:
    """The longest answer of `/healthz` (s) while the request was under way, and its own status."""
    data = attack.bytes(key)
    began = time.monotonic()
    status = await send(host, port, data)
    await asyncio.sleep(0.03)
    return max(prober.since(began), default=0.0), status


async def search(host: str, port: int, key: str, seconds: float, seed: int) -> bool:
    """Look for the worst request; print what was found. Whether `/healthz` kept within its limit."""
    dice = random.Random(seed)
    with Prober(host, port) as prober:
        return await _search(host, port, key, seconds, dice, prober)


async def _search(
    host: str, port: int, key: str, seconds: float, dice: random.Random, prober: Prober
) -> bool:
    await asyncio.sleep(1)  # its process starts
    idle = time.monotonic()
    await asyncio.sleep(5)
    print(f"idle: /healthz {_spread(prober.since(idle))}")
    begun = time.monotonic()
    found: dict[Attack, float] = {}
    statuses: Counter[int] = Counter()
    queue = [
        Attack(route, kind, (shape,), 10_000) for shape in SHAPES for route in ROUTES[:2] for kind in KINDS
    ]
    dice.shuffle(queue)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        best = sorted(found, key=found.__getitem__, reverse=True)[:12]
        attack = (
            queue.pop() if queue else mutated(dice.choice(best), dice) if dice.random() < 0.7 else drawn(dice)
        )
        if attack in found:
            continue
        longest = float("inf")
        for _ in range(3):
            took, status = await stall(host, port, prober, attack, key)
            statuses[status] += 1
            longest = min(longest, took)
            if longest < MOST_SECONDS / 2:
                break
        found[attack] = longest
    print(f"{len(found)} requests, answers {dict(sorted(statuses.items()))}")
    p99 = percentile(prober.since(begun), 0.99)
    print(f"/healthz meanwhile: {_spread(prober.since(begun))}")
    worst = sorted(found.items(), key=lambda pair: pair[1], reverse=True)[:8]
    for attack, took in worst:
        print(f"  {1000 * took:6.0f} ms  {attack}")
    bodies = [attack.bytes(key) for attack, _ in worst]
    begun = time.monotonic()

    async def client(data: bytes) -> None:
        while time.monotonic() < begun + 10:
            statuses[await send(host, port, data)] += 1

    statuses.clear()
    await asyncio.gather(*map(client, bodies))
    together = percentile(prober.since(begun), 0.99)
    print(
        f"the eight at once for 10 s: {statuses.total()} answers {dict(sorted(statuses.items()))}; "
        f"/healthz {_spread(prober.since(begun))}"
    )
    return max(p99, together) <= 1000 * MOST_SECONDS


async def never_read(
    host: str, port: int, key: str, other_key: str, path: str, number: int, process: psutil.Process
) -> bool:
    """Let `number` clients ask for `path` and read nothing; print what it costs."""
    with Prober(host, port) as prober:
        return await _never_read(host, port, key, other_key, path, number, process, prober)


async def _never_read(
    host: str,
    port: int,
    key: str,
    other_key: str,
    path: str,
    number: int,
    process: psutil.Process,
    prober: Prober,
) -> bool:
    before = process.memory_info().rss
    writers = []
    for _ in range(number):
        reader, writer = await asyncio.open_connection(host, port, limit=1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(_request("GET", path, key))
        writers.append((reader, writer))
    others: Counter[int] = Counter()
    largest, seconds = before, 0
    began = time.monotonic()
    while seconds < WATCH_SECONDS:
        others[await send(host, port, _request("GET", "/v1/jobs?limit=1", other_key))] += 1
        await asyncio.sleep(0.5)
        largest, seconds = max(largest, process.memory_info().rss), int(time.monotonic() - began)
    left = sum(one.status == "ESTABLISHED" and one.laddr.port == port for one in process.net_connections())
    print(
        f"{number} clients that never read: memory {before >> 20} to {largest >> 20} MiB; "
        f"after {WATCH_SECONDS} s {left} connections are open; "
        f"another key's requests were answered {dict(others)}; "
        f"/healthz {_spread(prober.since(began))}"
    )
    for _, writer in writers:
        writer.transport.abort()
    refused = 1 - others[200] / others.total()
    return percentile(prober.since(began), 0.99) <= 1000 * MOST_SECONDS and refused <= MOST_REFUSED


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
    home, redis_home = Path(tempfile.mkdtemp(prefix="spool-worst-")), temporary_home()
    url = f"sqlite:///{home / 'spool.db'}"
    migrations.upgrade(url)
    database = Database(url)
    with database.begin() as tx:
        keys = [create_key(tx, name, "p", [Scope.READ, Scope.SUBMIT]).text for name in ("one", "other")]
    database.close()
    announced = home / "api.json"
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
            host, port = str(address.hostname), int(address.port or 0)
            held = asyncio.run(search(host, port, keys[0], args.seconds, args.seed))
            if args.readers:
                path = asyncio.run(_uploaded(host, port, keys[0]))
                facts = psutil.Process(process.pid)
                held &= asyncio.run(never_read(host, port, keys[0], keys[1], path, args.readers, facts))
        finally:
            process.terminate()
            process.wait(60)
            shutil.rmtree(home, ignore_errors=True)
            shutil.rmtree(redis_home, ignore_errors=True)
    print("HELD" if held else f"DID NOT HOLD: /healthz took longer than {1000 * MOST_SECONDS:.0f} ms")
    return 0 if held else 1


async def _uploaded(host: str, port: int, key: str) -> str:
    """The path of a recording of 20 MiB."""
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    body = head + b"RIFF" + b"\0" * (20 << 20) + b"\r\n--b--\r\n"
    reader, writer = await asyncio.open_connection(host, port)
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    writer.write(_request("POST", "/v1/jobs", key, body, kind))
    answer = await reader.readuntil(b"\r\n\r\n")
    document = json.loads(await reader.readexactly(_length(answer)))
    writer.close()
    return f"/v1/jobs/{document['id']}/audio"


if __name__ == "__main__":
    sys.exit(main())
