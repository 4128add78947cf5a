"""Checks what a soak left behind against the laws, with SQL of its own.

Shares no code with `spool.audit` and names the tables only, so that a mistake of the audit or of the store's
queries is not repeated here. Each check of `CHECKS` returns the rows that break it.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Engine, text

CHECKS = {
    "a job that did not end well": """
        SELECT id, state, error_code, error_message FROM jobs WHERE state <> 'done'""",
    "two jobs of one recording": "SELECT name, count(*) FROM jobs GROUP BY name HAVING count(*) > 1",
    "a lease of a job that has ended": """
        SELECT id FROM jobs WHERE state <> 'running' AND lease_owner IS NOT NULL""",
    "a gap or an overlap between chunks": """
        SELECT job_id, channel, number, core_start, previous FROM (
            SELECT job_id, channel, number, core_start,
                   lag(core_end) OVER (PARTITION BY job_id, channel ORDER BY core_start) AS previous
            FROM chunks) AS spans
        WHERE core_start <> coalesce(previous, 0)""",
    "chunks that do not reach the recording's end": """
        SELECT j.id, j.audio_seconds, max(c.core_end) FROM jobs j JOIN chunks c ON c.job_id = j.id
        GROUP BY j.id, j.audio_seconds HAVING abs(max(c.core_end) - j.audio_seconds * 16000) > 0.5""",
    "a job without chunks": "SELECT id FROM jobs WHERE id NOT IN (SELECT job_id FROM chunks)",
    "a transcript of two makers": """
        SELECT j.id FROM jobs j JOIN chunks c ON c.job_id = j.id
        GROUP BY j.id, j.fingerprint
        HAVING min(c.fingerprint) <> max(c.fingerprint) OR min(c.fingerprint) <> j.fingerprint""",
    "a bill that is not its chunks": """
        SELECT c.job_id, c.engine_ns, coalesce(l.engine_ns, 0) FROM
            (SELECT job_id, sum(engine_ns) AS engine_ns, sum(core_end - core_start) AS samples
             FROM chunks GROUP BY job_id) AS c
            LEFT JOIN (SELECT job_id, sum(engine_ns) AS engine_ns, sum(audio_samples) AS samples
                       FROM cost_lines WHERE NOT wasted GROUP BY job_id) AS l ON l.job_id = c.job_id
        WHERE c.engine_ns <> coalesce(l.engine_ns, 0) OR c.samples <> coalesce(l.samples, 0)""",
    "a bill without a job": "SELECT job_id FROM cost_lines WHERE job_id NOT IN (SELECT id FROM jobs)",
    "wasted time that bills audio": "SELECT job_id FROM cost_lines WHERE wasted AND audio_samples <> 0",
    "a worker whose lines are not its busy time": """
        SELECT w.name, w.busy_ns, coalesce(sum(l.engine_ns), 0) FROM workers w
        LEFT JOIN cost_lines l ON l.worker_id = w.id GROUP BY w.id, w.name, w.busy_ns
        HAVING w.busy_ns <> coalesce(sum(l.engine_ns), 0)""",
    "a drained worker whose engine was busier than it billed": """
        SELECT name, busy_ns, engine_busy_ns FROM workers
        WHERE stopped_at IS NOT NULL AND busy_ns <> engine_busy_ns""",
    "a job that is done twice or never, by its events": """
        SELECT j.id, count(e.id) FROM jobs j LEFT JOIN events e ON e.job_id = j.id AND e.type = 'job.done'
        GROUP BY j.id HAVING count(e.id) <> 1""",
    "a number of an event that is missing": """
        SELECT id, previous FROM (SELECT id, lag(id) OVER (ORDER BY id) AS previous FROM events) AS numbered
        WHERE id <> coalesce(previous, 0) + 1""",
    "a change that became no event": "SELECT id, job_id FROM event_inbox",
    "a message of a job that has ended": "SELECT id, job_id FROM outbox",
    "an attempt that nobody started": """
        SELECT j.id, j.attempt, count(e.id) FROM jobs j
        LEFT JOIN events e ON e.job_id = j.id AND e.type = 'job.started'
        GROUP BY j.id, j.attempt HAVING count(e.id) <> j.attempt""",
}
MOST_SHOWN = 5
MOST_READ = 3000
"""Transcripts that are read back, drawn at random."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What the clients know: by a job's name the SHA-256 of its recording, and of which it is a twin; by a
    job's id the digests of its transcript as the API served it."""

    recordings: Mapping[str, str]
    twins: Mapping[str, str]
    served: Mapping[str, set[str]]


def breaches(engine: Engine, submitted: Submitted, read: Callable[[str], bytes]) -> list[str]:
    """Every breach as a sentence; there should be none. `read` gets an object of the store by its key."""
    found = []
    with engine.connect() as connection:
        for name, query in CHECKS.items():
            rows = connection.execute(text(query)).all()
            found += [f"{name}: {tuple(row)}" for row in rows[:MOST_SHOWN]]
            if len(rows) > MOST_SHOWN:
                found.append(f"{name}: {len(rows)} in all")
        columns = "id, name, content_sha256, transcript_key, transcript_sha256"
        jobs = {
            row.name.removesuffix(".wav"): row
            for row in connection.execute(text(f"SELECT {columns} FROM jobs"))
        }
        found += [f"lost: {name}" for name in submitted.recordings if name not in jobs]
        found += [f"nobody submitted {name}" for name in jobs if name not in submitted.recordings]
        for name, row in jobs.items():
            if row.content_sha256 != submitted.recordings.get(name):
                found.append(f"{row.id} was decoded from other bytes than were submitted")
            if others := submitted.served.get(row.id, set()) - {row.transcript_sha256}:
                found.append(f"{row.id}: {len(others)} other transcripts were served as good")
    return found + list(_transcripts(jobs, submitted.twins, read))


def _transcripts(
    jobs: Mapping[str, object], twins: Mapping[str, str], read: Callable[[str], bytes]
) -> Iterator[str]:
    """What is wrong with the transcripts: their bytes, their makers, and the words of the same recording."""
    dice = random.Random(0)
    wanted = set(dice.sample(sorted(jobs), min(len(jobs), MOST_READ)))
    wanted |= {name for pair in twins.items() if wanted & set(pair) for name in pair}
    heard: dict[str, tuple[str, list[str]]] = {}
    for name in sorted(wanted & jobs.keys()):
        row = jobs[name]
        if not row.transcript_key:  # type: ignore[attr-defined]
            continue
        record = read(row.transcript_key)  # type: ignore[attr-defined]
        if hashlib.sha256(record).hexdigest() != row.transcript_sha256:  # type: ignore[attr-defined]
            yield f"the transcript of {name} is not what was recorded"
        document = json.loads(record)
        words = [word["text"] for word in document["words"]]
        if len({word.startswith("b-") for word in words}) > 1:
            yield f"{name} has words of two models: {words[:8]}"
        heard[name] = document["model"]["sha256"], words
    for name, other in twins.items():
        if name in heard and other in heard:
            (maker, words), (other_maker, others) = heard[name], heard[other]
            if maker == other_maker and words != others:
                yield f"{name} and {other} are one recording and have other words"
