"""Live sessions through all of Spool: WebSockets, an API's process, Redis, PostgreSQL, a folder of
objects, and a worker's process. The clients are in this process."""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import soundfile
from sqlalchemy import func, select
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

import migrations
from ops.bench.live.run import BLOCK, Run, Samples, percentiles
from ops.testbed.live.fleet import TOKEN, LiveFleet
from ops.testbed.postgres import PostgresServer
from ops.testbed.processes import REAL
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.tables import chunks, cost_lines
from worker.audio import SAMPLE_RATE

BYTES = 2
MOST_SESSIONS = 1000
ARCHIVE_SECONDS = 300
JOBS_AHEAD = 4
SETTLE_SECONDS = 120.0
OPEN_SECONDS = 15.0
"""Without another session being admitted, after which the rest count as refused."""


@contextmanager
def live_fleet(
    model: str, device: str = "cpu", environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[LiveFleet]:
    """A fleet on PostgreSQL and Redis, with one worker and as many sessions as it admits."""
    with ExitStack() as stack:
        home = temporary_home()
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        redis, postgres = EmbeddedRedis(home), PostgresServer()
        redis.start()
        stack.callback(redis.stop)
        postgres.start()
        stack.callback(postgres.close)
        url = postgres.create_database("live")
        migrations.upgrade(url)
        told = {
            "SPOOL_LIVE_SESSIONS": str(MOST_SESSIONS),
            "SPOOL_LIVE_SESSIONS_PER_KEY": str(MOST_SESSIONS),
            "SPOOL_DEVICE": device,
            "SPOOL_LEASE_SECONDS": "30",
            "SPOOL_LOG_JSON": "true",
            **environment,
        }
        models = {"stream": str(Path(model).resolve())}
        fleet = stack.enter_context(closing(LiveFleet(home, url, redis.url, models, **told)))
        fleet.serve()
        fleet.start(*REAL)
        yield fleet


class HeardWord(NamedTuple):
    """When it was spoken, by the clock, and how long after that it was in a partial and final, in seconds."""

    spoken: float
    partial: float
    final: float


@dataclass
class Client:
    """One session: speaks a recording over and over, and times the words that come back."""

    samples: Samples
    socket: ClientConnection
    job_id: str = ""
    words: list[HeardWord] = field(default_factory=list)
    _seen: dict[tuple[float, str], float] = field(default_factory=dict)

    @property
    def is_heard(self) -> bool:
        """Whether any word came back."""
        return bool(self._seen)

    async def run(self, window: "Window") -> None:
        """Speak until the window ends, and wait for the rest."""
        self._begun = time.monotonic()
        hearing = asyncio.create_task(self._hear())
        pcm = (self.samples * 32767).astype("<i2")
        at = 0
        while not window.has_ended:
            block = np.take(pcm, range(at, at + BLOCK), mode="wrap")
            at += BLOCK
            await asyncio.sleep(max(0.0, self._begun + at / SAMPLE_RATE - time.monotonic()))
            await self.socket.send(block.tobytes())
        await self.socket.send('{"type": "CloseStream"}')
        await hearing

    async def _hear(self) -> None:
        try:
            async for text in self.socket:
                message = json.loads(text)
                if message["type"] == "Results":
                    self._note(message, time.monotonic() - self._begun)
        except ConnectionClosed as end:
            raise RuntimeError(f"a session was closed: {end}") from end

    def _note(self, message: dict[str, Any], now: float) -> None:
        words = message["channel"]["alternatives"][0]["words"]
        for word in words:
            self._seen.setdefault((word["start"], word["word"]), now)
        if not message["is_final"]:
            return
        for word in words:
            seen, end = self._seen[word["start"], word["word"]], word["end"]
            self.words.append(HeardWord(self._begun + end, seen - end, now - end))


@dataclass
class Window:
    """What is measured: from when all sessions are open, for `seconds`."""

    seconds: float
    begun: float = float("inf")

    def stop(self) -> None:
        """It ends now."""
        self.seconds = time.monotonic() - self.begun

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return time.monotonic() > self.begun + self.seconds

    def summary(self, clients: Sequence[Client]) -> dict[str, Any]:
        """Of the words that were spoken in it."""
        end = self.begun + self.seconds
        words = [word for client in clients for word in client.words if self.begun <= word.spoken <= end]
        return {
            "words": len(words),
            "partial_ms": percentiles([word.partial for word in words]),
            "final_ms": percentiles([word.final for word in words]),
        }


class Archive:
    """Jobs for the worker, as long as the block runs: some wait at any time, each of other audio."""

    def __init__(self, fleet: LiveFleet, recordings: Sequence[Samples], run: Run) -> None:
        self._fleet, self._run = fleet, run
        self._speech = np.concatenate(recordings)
        self._jobs: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._submit_all, daemon=True)

    def __enter__(self) -> "Archive":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def seconds_done(self) -> float:
        """Of audio that was decoded so far."""
        spans = func.sum(chunks.c.core_end - chunks.c.core_start)
        with self._fleet.db.read() as tx:
            samples = tx.scalar(select(spans).where(chunks.c.job_id.in_(self._jobs)))
        return int(samples or 0) / SAMPLE_RATE

    def _submit_all(self) -> None:
        while not self._ended.wait(0.2):
            if (
                sum(not self._fleet.job(each).state.terminal for each in self._jobs[-JOBS_AHEAD:])
                < JOBS_AHEAD
            ):
                self._submit()

    def _submit(self) -> None:
        number = len(self._jobs)
        path = self._fleet.home / f"archive-{number}.wav"
        first = 1601 * number
        samples = np.take(self._speech, range(first, first + ARCHIVE_SECONDS * SAMPLE_RATE), mode="wrap")
        soundfile.write(path, samples, SAMPLE_RATE, subtype="PCM_16")
        self._jobs.append(self._fleet.submit(path, "stream", head=self._run.head))
        self._fleet.send(self._jobs[-1])


def measure_stack(model: str, recordings: Sequence[Samples], run: Run) -> Iterator[dict[str, Any]]:
    """A line for each number of sessions."""
    with live_fleet(model, run.device) as fleet:
        for count in run.sessions:
            if not run.archive:
                yield asyncio.run(_measure(fleet, recordings, run, count, None))
                continue
            with Archive(fleet, recordings, run) as archive:
                yield asyncio.run(_measure(fleet, recordings, run, count, archive))


async def _measure(
    fleet: LiveFleet, recordings: Sequence[Samples], run: Run, count: int, archive: Archive | None
) -> dict[str, Any]:
    window = Window(run.seconds)
    clients: list[Client] = []
    tasks = []
    last = time.monotonic()
    while len(clients) < count and time.monotonic() - last < OPEN_SECONDS:
        client = await open_client(fleet, run, recordings[len(clients) % len(recordings)])
        if client is None:
            await asyncio.sleep(1.0)
            continue
        last = time.monotonic()
        clients.append(client)
        tasks.append(asyncio.create_task(client.run(window)))
    await _settle(clients, archive)
    window.begun = time.monotonic()
    before = 0.0 if archive is None else await asyncio.to_thread(archive.seconds_done)
    await asyncio.sleep(run.seconds)
    after = 0.0 if archive is None else await asyncio.to_thread(archive.seconds_done)
    spoken = [time.monotonic() - client._begun for client in clients]
    await asyncio.gather(*tasks)
    line: dict[str, Any] = {
        "sessions": len(clients),
        "refused": count - len(clients),
        **window.summary(clients),
        "engine_share": round(await asyncio.to_thread(_engine_share, fleet, clients, spoken), 3),
    }
    return line if archive is None else line | {"archive_rtfx": round((after - before) / run.seconds, 1)}


async def _settle(clients: Sequence[Client], archive: Archive | None) -> None:
    """Wait until every session was answered, and jobs are under way."""
    begun = time.monotonic()
    while not all(client.is_heard for client in clients) or (
        archive is not None and not await asyncio.to_thread(archive.seconds_done)
    ):
        if time.monotonic() - begun > SETTLE_SECONDS:
            raise RuntimeError(f"no word and no job within {SETTLE_SECONDS:g} s")
        await asyncio.sleep(0.5)


async def open_client(fleet: LiveFleet, run: Run, samples: Samples) -> Client | None:
    """A session; None where it was refused for now."""
    context = ",".join(map(str, run.context))
    detector = str(run.detects).lower()
    address = fleet.address(
        att_context=context,
        head=run.head,
        interim_results="true",
        speech_detector=detector,
        endpointing="1000",
    )
    try:
        socket = await connect(
            address, additional_headers={"Authorization": f"Token {TOKEN}"}, proxy=None, open_timeout=60
        )
    except InvalidStatus as refusal:
        if refusal.response.status_code != 503:
            raise RuntimeError(refusal.response.body.decode()) from refusal
        return None
    assert socket.response is not None
    return Client(samples, socket, socket.response.headers["dg-request-id"])


def _engine_share(fleet: LiveFleet, clients: Sequence[Client], spoken: Sequence[float]) -> float:
    """Engine time of the sessions for a second of all of them."""
    jobs = [client.job_id for client in clients]
    with fleet.db.read() as tx:
        total = tx.scalar(select(func.sum(cost_lines.c.engine_ns)).where(cost_lines.c.job_id.in_(jobs)))
    seconds = sum(spoken) / len(spoken) if spoken else 1.0
    return int(total or 0) / 1e9 / seconds
