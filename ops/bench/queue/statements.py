"""The processor time that SQL takes for a short job: claim, look for versions, ending.

    python -m ops.bench.queue.statements [--jobs 400] [--together 4]

One thread claims, looks and ends so many jobs together as a worker does, on a PostgreSQL of its own; no audio
is decoded. Only this process's own time counts, so a busy machine matters little. The first quarter of the
jobs, in which statements are compiled, is left out.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import migrations
from ops.testbed.postgres import PostgresServer
from ops.testbed.rows import registered
from spool.domain.archive.passages import Passage, Spoken
from spool.domain.jobs import Source
from spool.domain.options import JobOptions
from spool.domain.priority import Rules
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.domain.transcript import Word
from spool.store.archive.versions import last_done_versions
from spool.store.database import Database
from spool.store.jobs import NewJob, create_job
from spool.store.ledger.charges import Charge
from spool.store.queue.endings import Ending, Outcome, finish_jobs
from spool.store.queue.leases import Claim
from spool.store.queue.scheduler import ClaimRequest, claim_next
from spool.store.workers import list_workers

SECONDS = 5.0
OPTIONS = JobOptions(model="demo-tdt")
WORDS = tuple(Word(text="word", start=0.4 * n, end=0.4 * n + 0.2, confidence=0.9) for n in range(12))
PASSAGE = Passage.of(0, None, len(WORDS), tuple(Spoken(w.text, w.start, w.end, 0.9) for w in WORDS))


class _Times:
    """Processor milliseconds of each part, from when it is told to count."""

    def __init__(self) -> None:
        self.counts = False
        self.parts = {"claim": 0.0, "versions": 0.0, "ending": 0.0}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        if self.counts:
            self.parts[name] += 1000 * (time.process_time() - began)


def run(db: Database, number: int, together: int) -> tuple[int, _Times]:
    """How many jobs were counted, and their times."""
    worker_id, times, ended, counted = registered(db), _Times(), 0, 0
    with db.begin() as tx:
        info = list_workers(tx)[0]
        for _ in range(number):
            create_job(tx, NewJob(Source("file", "file:///a.wav", 160_000), OPTIONS, "a.wav"))
    models = frozenset({OPTIONS.model})
    request = ClaimRequest(worker_id, info.pool, info.name, 60.0, alone=False, offered=models, most=together)
    while True:
        times.counts = ended >= number // 4
        with times.part("claim"), db.begin() as tx:
            claim = claim_next(tx, request, Rules())
        if not isinstance(claim, Claim):
            return counted, times
        claims = [claim, *claim.others]
        with times.part("versions"), db.look() as tx:
            last_done_versions(tx, [each.job for each in claims])
        endings = [_ending(each, ended + n) for n, each in enumerate(claims)]
        with times.part("ending"), db.begin() as tx:
            finish_jobs(tx, endings)
        ended += len(claims)
        counted += len(claims) * times.counts


def _ending(claim: Claim, number: int) -> Ending:
    outcome = Outcome(SECONDS, "key", "0" * 64, 1.0, len(WORDS), content_sha256=f"{number:064d}")
    samples = round(16_000 * SECONDS)
    chunk = DecodedChunk(
        ChunkSpan(0, 0, 0, samples, 0, samples), Recognition(words=WORDS, engine_ns=10_000_000), attempt=1
    )
    charge = Charge(
        claim.worker_id,
        10_000_000,
        samples,
        100_000,
        claim.job.options.model,
        claim.job.pool or "cpu",
        claim.job.project,
    )
    return Ending(claim, outcome, (PASSAGE,), (chunk, charge))


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--together", type=int, default=4)
    arguments = parser.parse_args()
    server = PostgresServer()
    try:
        server.start()
        url = server.create_database("statements")
        migrations.upgrade(url)
        db = Database(url)
        counted, times = run(db, arguments.jobs, arguments.together)
        db.close()
    finally:
        server.close()
    parts = ", ".join(f"{name} {total / counted:.2f}" for name, total in times.parts.items())
    every = sum(times.parts.values()) / counted
    print(f"ms of processor a job over {counted} jobs: {parts}; {every:.2f} in all")


if __name__ == "__main__":
    main()
