"""The soak in small: the faults depend on the seed alone, repeats are counted, breaches are seen, and a
minute of a storm with a new seed holds."""

import hashlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

import pytest
from sqlalchemy import Connection, update

from ops.soak.report import repeated_decodings
from ops.soak.run import main
from ops.soak.schedule import VARIANTS, meanings, schedule
from ops.soak.verify import Submitted, breaches
from ops.soak.wrong_clock import wrong_clock
from ops.testbed.counting_model import Decoding
from ops.testbed.rows import bill, chunk, claimed, queued, registered
from spool.store import Database, Outcome, finish_job, place_events, save_chunk
from spool.tables import chunks, cost_lines, jobs, outbox

SECOND = 1_000_000_000
WORKERS = ("alpha", "beta")


def test_the_faults_are_the_same_for_the_same_seed() -> None:
    faults = list(meanings("postgresql", "s3"))

    def first(seed: int, number: int) -> list[tuple[object, ...]]:
        return list(islice(schedule(seed, faults, WORKERS, 5.0), number))

    assert first(7, 200) == first(7, 200) != first(8, 200)
    assert {one[1] for one in first(7, len(faults))} == set(faults), "each kind comes about as often"
    met = {(one[1], one[3]) for one in first(7, 100 * len(faults))}
    assert met >= {(fault, variant) for fault, variants in VARIANTS.items() for variant in variants}


@pytest.mark.integration
@pytest.mark.parametrize(("offset", "seconds"), [("+4h", 14_400), ("-10m", -600)])
def test_a_wrong_clock_is_wrong_about_the_time_of_day_alone(offset: str, seconds: int) -> None:
    code = (
        "import threading, time; began = time.monotonic(); time.sleep(0.05); threading.Event().wait(0.05);"
        "print(time.time(), time.monotonic() - began)"
    )
    env = os.environ | wrong_clock(offset)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True, timeout=60)
    now, waited = map(float, done.stdout.split())
    assert abs(now - time.time() - seconds) < 30
    assert 0.1 <= waited < 30, "sleeps and waits are not off"


class _Within:
    """Lends one open transaction as an engine would."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connect(self) -> "AbstractContextManager[Connection]":
        return nullcontext(self._connection)


def finished(db: Database, name: str, digest: str, record: bytes) -> str:
    """A job of one chunk that is done as it should be, through the store's own functions."""
    worker = registered(db)
    job = queued(db, name=f"{name}.wav", tags=None)
    claim = claimed(db, job.id, worker)
    with db.begin() as tx:
        saved = chunk()
        tx.execute(update(jobs).where(jobs.c.id == job.id).values(fingerprint="f" * 64))
        save_chunk(tx, claim, saved, bill(worker))
        tx.execute(update(chunks).where(chunks.c.job_id == job.id).values(fingerprint="f" * 64))
        key, sha256 = f"jobs/{job.id}/t.json", hashlib.sha256(record).hexdigest()
        finish_job(tx, claim, Outcome(30.0, key, sha256, 1.0, 1, content_sha256=digest, fingerprint="f" * 64))
        tx.execute(outbox.delete())
        while place_events(tx):
            pass
    return job.id


BROKEN = {
    "a job that did not end well": update(jobs).values(state="failed"),
    "two jobs of one recording": update(jobs).values(name="one.wav"),
    "a gap or an overlap between chunks": update(chunks).values(core_start=1),
    "chunks that do not reach the recording's end": update(jobs).values(audio_seconds=31.0),
    "a transcript of two makers": update(chunks).values(fingerprint="0" * 64),
    "a bill that is not its chunks": update(cost_lines).values(engine_ns=cost_lines.c.engine_ns + 1),
    "a worker whose lines are not its busy time": update(cost_lines).values(engine_ns=1),
    "an attempt that nobody started": update(jobs).values(attempt=2),
    "was decoded from other bytes": update(jobs).values(content_sha256="2" * 64),
    "other transcripts were served": update(jobs).values(transcript_sha256="3" * 64),
}


def test_breaches_are_seen(sqlite_url: str) -> None:
    db = Database(sqlite_url)
    document = {"model": {"sha256": "m"}, "words": [{"text": "level1"}]}
    record = json.dumps(document).encode()
    one, two = (finished(db, name, "1" * 64, record) for name in ("one", "two"))
    digest = hashlib.sha256(record).hexdigest()
    submitted = Submitted({"one": "1" * 64, "two": "1" * 64}, {"two": "one"}, {one: {digest}, two: {digest}})
    records = {f"jobs/{one}/t.json": record, f"jobs/{two}/t.json": record}

    assert breaches(db.engine, submitted, records.__getitem__) == []
    for expected, statement in BROKEN.items():
        with db.engine.connect() as connection, connection.begin() as change:
            connection.execute(statement)
            found = breaches(_Within(connection), submitted, records.__getitem__)  # type: ignore[arg-type]
            change.rollback()
        assert any(expected in one for one in found), (expected, found)
    mixed = json.dumps(document | {"words": [{"text": "level1"}, {"text": "b-level1"}]}).encode()
    found = breaches(db.engine, submitted, (records | {f"jobs/{one}/t.json": mixed}).__getitem__)
    assert any("words of two models" in one for one in found)
    assert any("is not what was recorded" in one for one in found)
    assert any("one recording and have other words" in one for one in found)
    lost = Submitted({**submitted.recordings, "three": "1" * 64}, {}, {})
    assert "lost: three" in breaches(db.engine, lost, records.__getitem__)
    db.close()


def test_repeats_on_a_device_that_died_stand_apart() -> None:
    first = [Decoding("early", 10, 1, 1 * SECOND), Decoding("one", 10, 1, 2 * SECOND)]
    first += [Decoding("two", 10, 1, 3 * SECOND), Decoding("asleep", 10, 2, 4 * SECOND)]
    again = [Decoding("early", 10, 3, 8 * SECOND), Decoding("two", 10, 3, 9 * SECOND)]
    again += [Decoding("asleep", 10, 3, 10 * SECOND), Decoding("other", 10, 2, 21 * SECOND)]
    again += [Decoding("more", 10, 2, 22 * SECOND), Decoding("other", 10, 2, 23 * SECOND)]

    repeated = repeated_decodings([*first, *again], stopped=[(5.0, 9.0)], kept_samples=60)

    assert (repeated.decodings, repeated.samples, repeated.again_samples) == (10, 100, 40)
    assert repeated.in_flight == 2, "`two` was in the last batches of its process, `asleep` around a sleep"
    assert (repeated.besides, repeated.besides_samples) == (2, 20), (
        "`early` could have been saved, `other` was no death"
    )


@pytest.mark.timeout(900)
def test_a_minute_of_a_storm_holds(
    capsys: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]
) -> None:
    seed = secrets.randbelow(1_000_000)
    record_property("drawn", f"seed {seed}")  # the processes that run tests in parallel print nothing
    code = main(["--hours", str(1 / 60), "--seed", str(seed), "--rate", "1"])  # beside other tests

    output = capsys.readouterr().out
    assert code == 0, output
    assert "every law holds" in output
