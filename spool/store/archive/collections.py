"""The collections of an archive: each project as a whole, and the newest batches in them.

A fixed number of queries: ended jobs by an index, open ones by theirs, the jobs of the listed batches, and
doubtful passages.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from spool.domain.archive.review import WORTH_REVIEW
from spool.domain.estimates import Sums, outlook
from spool.domain.jobs import TERMINAL, JobState
from spool.domain.pricing import SAMPLE_RATE
from spool.store.archive.versions import has_later_transcript
from spool.store.batch_progress import WINDOW_SECONDS
from spool.store.batches import list_batches
from spool.store.sql import read_clock
from spool.tables import cost_lines, jobs, review_passages


class _Of(NamedTuple):
    """What a row counts for: a batch, or a project where `batch` is None."""

    project: str
    batch: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A project, or a batch of it. `failures`: jobs by the code of their error. `doubtful`: passages to
    review. `left_seconds`: how long the open jobs will take, None if unknown."""

    project: str
    batch: str | None
    name: str
    created_at: datetime | None
    counts: dict[JobState, int]
    failures: dict[str, int]
    doubtful: int
    left_seconds: float | None


def list_collections(tx: Connection, project: str | None, batches: int) -> list[Collection]:
    """The projects, or this one, by name; after each its batches among the newest `batches`, newest first."""
    listed = list_batches(tx, project, limit=batches).items
    ids = [batch.id for batch in listed]
    counts = _count_jobs(tx, project, ids)
    doubtful = _count_doubtful(tx, project)
    left = _estimate_left(tx, project)
    collections = []
    for name in sorted({of.project for of in counts} | {batch.project for batch in listed}):
        shown: list[tuple[_Of, str, datetime | None]] = [(_Of(name, None), name, None)]
        shown += [
            (_Of(name, batch.id), batch.name, batch.created_at) for batch in listed if batch.project == name
        ]
        for of, title, created_at in shown:
            own = counts.get(of, Counter())
            by_state = dict.fromkeys(JobState, 0)
            for (state, _), number in own.items():
                by_state[state] += number
            collections.append(
                Collection(
                    project=name,
                    batch=of.batch,
                    name=title,
                    created_at=created_at,
                    counts=by_state,
                    failures={
                        error: number for (state, error), number in own.items() if state is JobState.FAILED
                    },
                    doubtful=doubtful[of],
                    left_seconds=left.get(of, 0.0),
                )
            )
    return collections


def _count_jobs(
    tx: Connection, project: str | None, batch_ids: Sequence[str]
) -> dict[_Of, Counter[tuple[JobState, str]]]:
    """Jobs by state and, if failed, by the error's code."""
    ended = jobs.c.state.in_([state.value for state in TERMINAL])
    counts: defaultdict[_Of, Counter[tuple[JobState, str]]] = defaultdict(Counter)
    passes: list[tuple[ColumnElement[str] | None, ColumnElement[bool]]] = [(None, ended), (None, ~ended)]
    if batch_ids:
        passes.append((jobs.c.batch_id, jobs.c.batch_id.in_(batch_ids)))
    for batch, condition in passes:
        groups = [jobs.c.project, jobs.c.state, jobs.c.error_code, *([] if batch is None else [batch])]
        query = select(*groups, func.count()).where(condition, *_of_project(project)).group_by(*groups)
        for owner, state, error, *of, number in tx.execute(query):
            # A cancelled job may have failed before.
            code = error or "" if state == JobState.FAILED.value else ""
            counts[_Of(owner, of[0] if of else None)][JobState(state), code] += int(number)
    return counts


def _count_doubtful(tx: Connection, project: str | None) -> Counter[_Of]:
    """Unchecked passages that are worth a person's time, of each recording's newest transcript."""
    passages = review_passages.c
    query = (
        select(jobs.c.project, jobs.c.batch_id, func.count())
        .select_from(review_passages.join(jobs, jobs.c.id == passages.job_id))
        .where(passages.checked_at.is_(None), passages.doubt >= WORTH_REVIEW, ~has_later_transcript())
        .group_by(jobs.c.project, jobs.c.batch_id)
    )
    if project is not None:
        query = query.where(passages.project == project)
    counts: Counter[_Of] = Counter()
    for owner, batch, number in tx.execute(query):
        for of in {_Of(owner, None), _Of(owner, batch)}:
            counts[of] += number
    return counts


@dataclass(slots=True)
class _Work:
    """Sums over the open jobs of a collection and those decoded lately."""

    open_jobs: int = 0
    open_known_seconds: float = 0.0
    open_unknown: int = 0
    known: int = 0
    known_seconds: float = 0.0
    recent_audio_seconds: float = 0.0
    recent_since: datetime | None = None

    def estimate_left(self, now: datetime) -> float | None:
        since = self.recent_since
        wall = 0.0 if since is None else min(WINDOW_SECONDS, max(0.0, (now - since).total_seconds()))
        return outlook(
            Sums(
                open_jobs=self.open_jobs,
                open_known_seconds=self.open_known_seconds,
                open_unknown=self.open_unknown,
                known=self.known,
                known_seconds=self.known_seconds,
                billed_audio_seconds=0.0,
                billable_nanos=0,
                recent_audio_seconds=self.recent_audio_seconds,
                recent_wall_seconds=wall,
            )
        ).time_left_seconds


def _estimate_left(tx: Connection, project: str | None) -> dict[_Of, float | None]:
    """Seconds until the open jobs of each collection with any have ended, at its pace of the last minutes."""
    known, left = jobs.c.audio_seconds.is_not(None), jobs.c.audio_seconds - jobs.c.done_seconds
    groups = (jobs.c.project, jobs.c.batch_id)
    open_jobs = (
        select(
            *groups,
            func.count(),
            func.coalesce(func.sum(case((and_(known, left > 0), left), else_=0.0)), 0.0),
            func.sum(case((known, 0), else_=1)),
            func.count(jobs.c.audio_seconds),
            func.coalesce(func.sum(jobs.c.audio_seconds), 0.0),
        )
        .where(jobs.c.state.in_([JobState.QUEUED.value, JobState.RUNNING.value]), *_of_project(project))
        .group_by(*groups)
    )
    work: defaultdict[_Of, _Work] = defaultdict(_Work)
    for owner, batch, number, seconds, unknown, lengths, length in tx.execute(open_jobs):
        for of in {_Of(owner, None), _Of(owner, batch)}:
            one = work[of]
            one.open_jobs += number
            one.open_known_seconds += seconds
            one.open_unknown += unknown
            one.known += lengths
            one.known_seconds += length
    if not work:
        return {}
    now = read_clock(tx)
    begun = now - timedelta(seconds=WINDOW_SECONDS)
    lines = cost_lines.c
    decoded = (
        select(lines.job_id, func.sum(lines.audio_samples).label("samples"))
        .where(lines.day >= begun.date(), lines.updated_at >= begun, ~lines.wasted)
        .group_by(lines.job_id)
        .subquery()
    )
    recent = (
        select(
            *groups,
            func.sum(decoded.c.samples),
            func.count(jobs.c.audio_seconds),
            func.coalesce(func.sum(jobs.c.audio_seconds), 0.0),
            func.min(jobs.c.started_at),
        )
        .select_from(decoded.join(jobs, jobs.c.id == decoded.c.job_id))
        .group_by(*groups)
    )
    for owner, batch, samples, lengths, length, since in tx.execute(recent):
        for of in {_Of(owner, None), _Of(owner, batch)} & work.keys():
            one = work[of]
            one.known += lengths
            one.known_seconds += length
            one.recent_audio_seconds += int(samples) / SAMPLE_RATE
            one.recent_since = min(filter(None, (one.recent_since, since)), default=None)
    return {of: one.estimate_left(now) for of, one in work.items()}


def _of_project(project: str | None) -> list[ColumnElement[bool]]:
    return [] if project is None else [jobs.c.project == project]
