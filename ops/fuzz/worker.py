"""Sends damaged recordings through a whole worker: `python -m ops.fuzz.worker --count 300 --seed 1`.

Jobs go from claim to bill (fetching, chunks, the engine's child with a tiny real model, the transcript),
eight at a time, every tenth of them undamaged. Afterwards every job has ended, undamaged ones have the
transcript that they have alone, the engine's child has never died, and the bills equal the engine's busy time
to the nanosecond; otherwise the exit code is 1.
"""

import argparse
import collections
import hashlib
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

import migrations
from ops.fuzz.mutation import Seed, mutated
from ops.fuzz.targets import ROOT, recordings
from ops.testbed.jobs import WorkerHarness
from spool.domain.jobs import JobState
from spool.settings import load_settings
from spool.store.database import Database
from worker.engine.client import Engine
from worker.engine.protocol import EngineOptions
from worker.engine.scheduler import BatchLimits

MODEL = ROOT / "tests" / "golden" / "tdt"
THREADS = 8
NEIGHBOUR_EVERY = 10
RATE = 16_000


def words_of(harness: WorkerHarness, job_id: str) -> str:
    """A digest of what the job's transcript says, and how much of the recording it covers.

    Confidences count to three digits: the sixth may change with the shape of the batch.
    """
    key = harness.job(job_id).transcript_key
    if key is None:
        return "no transcript"
    record = json.loads(harness.read(key))
    words = [word | {"confidence": round(word["confidence"], 3)} for word in record["words"]]
    summary = json.dumps([words, record["coverage"]], sort_keys=True)
    return hashlib.sha256(summary.encode()).hexdigest()


def run_all(harness: WorkerHarness, files: list[tuple[str, bytes]]) -> list[str]:
    """Submit and run them; the ids in order."""
    ids = []
    for number, (name, content) in enumerate(files):
        path = harness.folder / f"{number}-{name}"
        path.write_bytes(content)
        ids.append(harness.submit(path, model="tiny"))
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(harness.run, ids))
    return ids


def fuzz(harness: WorkerHarness, seeds: list[Seed], count: int, seed: int) -> int:
    neighbour = next(found for found in seeds if found.name == "a.flac")
    intact = (neighbour.name, neighbour.content)
    alone = words_of(harness, run_all(harness, [intact])[0])
    files = [intact if at % NEIGHBOUR_EVERY == 0 else mutated(seeds, seed, at) for at in range(count)]
    began = time.monotonic()
    ids = run_all(harness, files)
    jobs = [harness.job(job_id) for job_id in ids]
    endings = collections.Counter(f"{job.state.value} {job.error_code or ''}".strip() for job in jobs)
    others = [job.id for job in jobs[::NEIGHBOUR_EVERY] if words_of(harness, job.id) != alone]
    unended = [job.id for job in jobs if not job.state.terminal]
    odd = [f"{job.name}: {job.error_message}" for job in jobs if job.error_code in ODD]
    busy = harness.assert_bills_equal_busy_time()
    print(
        f"{count} recordings, seed {seed}, {time.monotonic() - began:.0f} s, engine busy {busy / 1e9:.1f} s"
    )
    for ending, times in endings.most_common():
        print(f"  {times:6d}  {ending}")
    done = sum(job.state is JobState.DONE for job in jobs[::NEIGHBOUR_EVERY])
    words = jobs[0].words
    print(f"neighbours: {done} done, {len(others)} with another transcript than alone ({words} words)")
    print(f"not ended: {unended}; engine restarts: {harness.engine.stats.restarts}; unexpected: {odd}")
    return 1 if others or unended or odd or harness.engine.stats.restarts else 0


ODD = {"internal", "engine", "engine_crashed", "engine_stopped", "poison", "storage", "model_unreadable"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # a log a job would be thousands
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        (home / "seeds").mkdir()
        (home / "archive").mkdir()
        url = f"sqlite:///{home / 'spool.db'}"
        migrations.upgrade(url)
        settings = load_settings(
            {},
            home=home,
            database_url=url,
            models={"tiny": str(MODEL)},
            default_model="tiny",
            source_roots=(home / "archive",),
            max_audio_seconds=600.0,
        )
        database = Database(url)
        limits = BatchLimits(utterances=8, samples=8 * 40 * RATE, padding=0.5)
        engine = Engine(EngineOptions(slots=16, limits=limits)).start()
        try:
            harness = WorkerHarness(settings, database, engine, home / "archive")
            return fuzz(harness, recordings(home / "seeds"), arguments.count, arguments.seed)
        finally:
            engine.close()
            database.close()


if __name__ == "__main__":
    sys.exit(main())
