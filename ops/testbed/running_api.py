"""The real app behind a real socket, in a thread of this process.

What only a worker would do to a job (claim, charge, finish) is done here through the store itself.
"""

import threading
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from sqlalchemy import Connection

from api.app import create_app
from api.middleware.slow_requests import WebSocketProtocol
from api.server.run import bind
from api.services import Services
from ops.testbed.waiting import until
from spool.broker.celery_app import queue_depth
from spool.domain.archive.passages import passages_of
from spool.domain.archive.verbatim import mark_disfluencies
from spool.domain.fleet.routing import Route
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.domain.transcript import (
    AudioFacts,
    ChunkNbest,
    Coverage,
    Lattice,
    ModelFacts,
    Segment,
    Transcript,
    Word,
)
from spool.formats import render
from spool.ids import new_id
from spool.settings import Settings
from spool.store.chunks import save_chunk
from spool.store.ledger.charges import Charge, write_charge
from spool.store.queue import endings, leases
from spool.store.queue.leases import Claim, claim_job
from spool.store.transcripts.review import FinishedJob, doubts_in
from spool.store.workers import heartbeat, register_worker
from spool.tables.workers import WorkerInfo
from worker.jobs.receipt import state


@dataclass
class Live:
    """A running API, and the store behind it."""

    url: str
    services: Services

    @property
    def settings(self) -> Settings:
        return self.services.settings

    def waiting(self) -> int:
        """Messages in the queue of the default model."""
        return queue_depth(self.services.queue, Route(None, model=self.settings.default_model).queue)

    def work(self) -> "FakeWorker":
        return FakeWorker(self.services)


class FakeWorker:
    """Does to a job what a worker would, as far as the store can tell."""

    def __init__(self, services: Services, name: str = "studio-1") -> None:
        self.services = services
        self.info = WorkerInfo(
            id=new_id("wrk"),
            name=name,
            pool="cpu",
            host="studio",
            chip="none",
            version="0",
            pid=1,
            models=("demo-tdt",),
            price_per_hour_micros=3_600_000,
            concurrency=2,
        )
        with services.database.begin() as tx:
            register_worker(tx, self.info)
            heartbeat(tx, self.info.id, "ready", 0)

    def claim(self, job_id: str) -> Claim:
        with self.services.database.begin() as tx:
            claim = claim_job(tx, job_id, self.info.id, 60, pool=self.info.pool)
        assert claim is not None
        return claim

    def save(self, claim: Claim, chunk: DecodedChunk) -> None:
        with self.services.database.begin() as tx:
            save_chunk(tx, claim, chunk, self._bill(claim, 1.0))

    def progress(self, claim: Claim, done: float, total: float) -> None:
        with self.services.database.begin() as tx:
            leases.set_progress(tx, claim, done, total)
            self._charge(tx, claim, done)

    def finish(
        self,
        job_id: str,
        words: tuple[str, ...] = ("keep", "the", "light"),
        lattice: tuple[Lattice, ...] = (),
        expected_seconds: float | None = None,
        claim: Claim | None = None,
        nbest: tuple[ChunkNbest, ...] = (),
        warnings: list[str] | None = None,
        content_sha256: str | None = None,
        unsaid: int = 0,
    ) -> None:
        """unsaid: how many words at the end are a segment that the sound does not support."""
        claim = claim or self.claim(job_id)
        record = transcript_of(job_id, words, unsaid).model_copy(update={"lattice": lattice, "nbest": nbest})
        if claim.job.options.verbatim != "keep":
            asked = claim.job.options.model_dump(mode="json", include={"language"})
            record = record.model_copy(update={"options": {**record.options, **asked}})
            record = mark_disfluencies(record, claim.job.options.verbatim)
        key = f"jobs/{job_id}/transcript.{claim.attempt}.json"
        stored = self.services.objects.put_bytes(key, render(record, "json").encode())
        (doubts,) = doubts_in(self.services.database, [FinishedJob(claim.job, None, record)])
        with self.services.database.begin() as tx:
            self._charge(tx, claim, record.audio.duration)
            outcome = endings.Outcome(
                record.audio.duration,
                key,
                stored.sha256 or "",
                1.0,
                len(words),
                complete=None if expected_seconds is None else expected_seconds <= record.audio.duration,
                expected_seconds=expected_seconds,
                warnings=warnings or [],
                content_sha256=content_sha256,
                words_without_evidence=unsaid or None,
            )
            end = round(record.audio.duration * 16_000)
            heard = [DecodedChunk(ChunkSpan(0, 0, 0, end, 0, end), Recognition(words=record.words))]
            statement = state(claim, record, outcome, heard, None, None)
            endings.finish_job(tx, claim, outcome, passages_of(record), doubts, statement)

    def fail(self, job_id: str, code: str, message: str) -> None:
        claim = self.claim(job_id)
        with self.services.database.begin() as tx:
            endings.fail_job(tx, claim, code, message)

    def _charge(self, tx: Connection, claim: Claim, audio_seconds: float) -> None:
        write_charge(tx, claim.job.id, claim.attempt, self._bill(claim, audio_seconds))

    def _bill(self, claim: Claim, audio_seconds: float) -> Charge:
        return Charge(
            worker_id=self.info.id,
            engine_ns=500_000_000,
            audio_samples=round(audio_seconds * 16_000),
            price_per_hour_micros=self.info.price_per_hour_micros,
            model=claim.job.options.model,
            pool=self.info.pool,
            project=claim.job.project,
        )


def transcript_of(job_id: str, words: tuple[str, ...], unsaid: int = 0) -> Transcript:
    text = " ".join(words)
    spoken = tuple(
        Word(text=word, start=index * 0.5, end=index * 0.5 + 0.4, confidence=0.9)
        for index, word in enumerate(words)
    )
    duration = len(words) * 0.5
    cuts = sorted({0, len(words) - unsaid, len(words)})
    segments = tuple(
        Segment(
            start=spoken[first].start,
            end=spoken[last - 1].end,
            text=" ".join(words[first:last]),
            channel=0,
            first_word=first,
            last_word=last - 1,
            flagged=first == len(words) - unsaid,
        )
        for first, last in pairwise(cuts)
    )
    return Transcript(
        job=job_id,
        audio=AudioFacts(name="reel", format="WAV", sample_rate=16_000, channels=1, duration=duration),
        model=ModelFacts(name="demo-tdt", sha256="0" * 64),
        options={"decoder": "greedy"},
        coverage=Coverage(
            audio_seconds=duration, covered_seconds=duration, speech_seconds=duration, ratio=1.0
        ),
        text=text,
        words=spoken,
        segments=segments,
    )


@dataclass
class Running:
    """uvicorn in a thread, until closed."""

    server: uvicorn.Server
    thread: threading.Thread
    live: Live

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()


def start(settings: Settings, **serving: Any) -> Running:
    app = create_app(settings)
    given = {"ws": WebSocketProtocol, **serving}
    config = uvicorn.Config(app, log_config=None, access_log=False, **given)
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    until(lambda: server.started or not thread.is_alive(), "the API serves")
    with httpx.Client(verify=False, timeout=60) as client:
        assert client.get(f"{url}/healthz").status_code == 200
    return Running(server, thread, Live(url, app.state.services))


def file_job(recordings: Path, **request: object) -> dict[str, object]:
    return {"source": (recordings / "reel 1.wav").as_uri(), **request}


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The response's problem document, checked for form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["code"] == code
    assert body["type"] == f"urn:spool:problem:{code}"
    assert body["title"]
    assert body["detail"].strip()
    assert body["instance"] == response.request.url.path
    return dict(body)
