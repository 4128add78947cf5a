"""A batch's progress: jobs by state, audio done and left, recent throughput, and the cost so far.

Sums of jobs and cost lines only; `spool.domain.estimates` derives time left and expected cost from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, func, select

from spool.domain.estimates import Sums
from spool.domain.jobs import JobState
from spool.domain.pricing import NANOS_PER_SECOND, SAMPLE_RATE
from spool.store.sql import now_utc, seconds_from_now
from spool.tables import cost_lines, jobs

WINDOW_SECONDS = 600.0
"""The window of recent throughput."""

_ENDED = [state.value for state in JobState if state.terminal]


@dataclass(frozen=True, kw_only=True)
class BatchProgress(Sums):
    """Sums over a batch's jobs and bills."""

    counts: dict[JobState, int]
    reused: int
    """Jobs that reused a transcript."""
    done_seconds: float
    """Audio decoded or reused."""
    billed_engine_seconds: float
    wasted_nanos: int
    recent_engine_seconds: float
    """Billed engine time of the cost lines that changed within `WINDOW_SECONDS`."""
    incomplete: int
    """Jobs that are done and whose recording was cut off."""


def batch_counts(tx: Connection, batch_ids: Sequence[str]) -> dict[str, dict[JobState, int]]:
    """Jobs by state (all five, zeros too) for each batch."""
    counts: dict[str, dict[JobState, int]] = {batch_id: dict.fromkeys(JobState, 0) for batch_id in batch_ids}
    if not counts:
        return counts
    rows = tx.execute(
        select(jobs.c.batch_id, jobs.c.state, func.count())
        .where(jobs.c.batch_id.in_(batch_ids))
        .group_by(jobs.c.batch_id, jobs.c.state)
    )
    for batch_id, state, number in rows:
        counts[batch_id][JobState(state)] = int(number)
    return counts


def jobs_progress(tx: Connection, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """State and seconds of audio, done and total, of each job that exists."""
    if not job_ids:
        return {}
    columns = (jobs.c.id, jobs.c.state, jobs.c.done_seconds, jobs.c.audio_seconds)
    rows = tx.execute(select(*columns).where(jobs.c.id.in_(job_ids)))
    return {
        row.id: {"state": row.state, "done_seconds": row.done_seconds, "audio_seconds": row.audio_seconds}
        for row in rows
    }


def read_batch_progress(tx: Connection, batch_id: str) -> BatchProgress:
    """All sums of a batch, in one pass over its jobs and one over its cost lines."""
    counts = batch_counts(tx, [batch_id])[batch_id]
    unended, known = jobs.c.state.not_in(_ENDED), jobs.c.audio_seconds.is_not(None)
    left = jobs.c.audio_seconds - jobs.c.done_seconds
    audio = tx.execute(
        select(
            func.count(jobs.c.reused_from),
            func.coalesce(func.sum(jobs.c.done_seconds), 0.0),
            func.coalesce(func.sum(case((unended & known & (left > 0), left), else_=0.0)), 0.0),
            func.coalesce(func.sum(case((unended & ~known, 1), else_=0)), 0),
            func.count(jobs.c.audio_seconds),
            func.coalesce(func.sum(jobs.c.audio_seconds), 0.0),
            func.min(jobs.c.started_at),
            now_utc(),
            func.coalesce(func.sum(case((jobs.c.complete.is_(False), 1), else_=0)), 0),
        ).where(jobs.c.batch_id == batch_id)
    ).one()
    bills = _bills(tx, batch_id)
    started, now = audio[6], audio[7]
    return BatchProgress(
        counts=counts,
        open_jobs=sum(number for state, number in counts.items() if not state.terminal),
        reused=int(audio[0]),
        done_seconds=float(audio[1]),
        open_known_seconds=float(audio[2]),
        open_unknown=int(audio[3]),
        known=int(audio[4]),
        known_seconds=float(audio[5]),
        billed_audio_seconds=bills[0] / SAMPLE_RATE,
        billed_engine_seconds=bills[1] / NANOS_PER_SECOND,
        billable_nanos=bills[2],
        wasted_nanos=bills[3],
        recent_audio_seconds=bills[4] / SAMPLE_RATE,
        recent_engine_seconds=bills[5] / NANOS_PER_SECOND,
        incomplete=int(audio[8]),
        recent_wall_seconds=0.0
        if started is None
        else min(WINDOW_SECONDS, max(0.0, (now - started).total_seconds())),
    )


def _bills(tx: Connection, batch_id: str) -> list[int]:
    lines = cost_lines.c
    recent = ~lines.wasted & (lines.updated_at >= seconds_from_now(-WINDOW_SECONDS))
    sums = [
        case((~lines.wasted, lines.audio_samples), else_=0),
        case((~lines.wasted, lines.engine_ns), else_=0),
        case((~lines.wasted, lines.cost_nanos), else_=0),
        case((lines.wasted, lines.cost_nanos), else_=0),
        case((recent, lines.audio_samples), else_=0),
        case((recent, lines.engine_ns), else_=0),
    ]
    row = tx.execute(
        select(*(func.coalesce(func.sum(part), 0) for part in sums))
        .select_from(jobs)
        .join(cost_lines, lines.job_id == jobs.c.id)
        .where(jobs.c.batch_id == batch_id)
    ).one()
    return [int(part) for part in row]
