"""What is closed of which job: the rows that stand, for any version of a recording.

Every way out of a transcript or a recording asks here, over HTTP through `api.auth.sight`.
"""

from collections.abc import Collection, Iterable, MutableMapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, or_, select

from spool.domain.archive.closures import ClosedParts, Closure
from spool.domain.jobs import Job
from spool.domain.manifest import in_blocks
from spool.store.rows import find_jobs
from spool.store.sql import now_utc
from spool.tables import closures, jobs, voice_prints, voices
from spool.tables.record import reader_of

closure_of = reader_of(Closure)
_BLOCK = 1000
"""Jobs of one statement: databases limit its parameters."""
STANDS = (
    closures.c.lifted_at.is_(None),
    or_(closures.c.until.is_(None), closures.c.until > now_utc()),
)


def closed_parts(tx: Connection, of_jobs: Collection[Job]) -> dict[str, ClosedParts]:
    """What is closed of each of these jobs, by id; those without closures are there too."""
    projects = {job.project for job in of_jobs}
    closing = {project for project in projects if any_content_closed(tx, project)}
    found: list[Found] = []
    for block in in_blocks([job for job in of_jobs if job.project in closing], _BLOCK):
        found += find_closures(tx, block, standing=True)
    by_recording: dict[str, set[int]] = {}
    by_content: dict[str, set[int]] = {}
    standing = list({each.closure.id: each for each in found}.values())
    for at, (closure, content) in enumerate(standing):
        by_recording.setdefault(closure.recording, set()).add(at)
        if content is not None:
            by_content.setdefault(content, set()).add(at)
    nothing: set[int] = set()
    parts = {}
    for job in of_jobs:
        near = by_recording.get(job.recording, nothing) | by_content.get(job.content_sha256 or "", nothing)
        parts[job.id] = ClosedParts.of(job, of_job(job, [standing[at] for at in sorted(near)]))
    return parts


def closed_parts_of(tx: Connection, job: Job) -> ClosedParts:
    """What is closed of one job."""
    return closed_parts(tx, [job])[job.id]


def any_content_closed(tx: Connection, project: str) -> bool:
    """Whether something of the project is closed: a recording whose content is not known yet may be it."""
    return bool(
        tx.scalar(select(exists(select(closures.c.id).where(closures.c.project == project, *STANDS))))
    )


def has_closures(project: str) -> ColumnElement[bool]:
    """Whether something is closed of a job of this project, for queries of `jobs`."""
    standing = select(closures).where(closures.c.project == project, *STANDS).subquery()
    closed_on = jobs.alias()
    content = func.coalesce(standing.c.content_sha256, closed_on.c.content_sha256)
    contents = select(content).join_from(standing, closed_on, closed_on.c.id == standing.c.job_id)
    return or_(
        func.coalesce(jobs.c.rerun_of, jobs.c.id).in_(select(standing.c.recording)),
        and_(
            jobs.c.content_sha256.is_not(None),
            jobs.c.content_sha256.in_(contents.where(content.is_not(None))),
        ),
    )


def closed_voices(tx: Connection, project: str) -> set[str]:
    """The voices of a project that are known only from recordings of which something is closed."""
    if not any_content_closed(tx, project):
        return set()
    query = select(voice_prints.c.voice_id, voice_prints.c.job_id)
    query = query.join(voices, voices.c.id == voice_prints.c.voice_id).where(voices.c.project == project)
    rows = tx.execute(query).all()
    closed: dict[str, ClosedParts] = {}
    for block in in_blocks(sorted({row.job_id for row in rows}), _BLOCK):
        closed |= closed_parts(tx, find_jobs(tx, block).values())
    heard_openly = {row.voice_id for row in rows if not closed[row.job_id]}
    return {row.voice_id for row in rows} - heard_openly


def hide_words(tx: Connection, documents: Sequence[MutableMapping[str, Any]]) -> None:
    """Remove what events say of the words of closed recordings; each names its `job`."""
    telling = [each for each in documents if each.get("job") and not _TELLING.isdisjoint(each)]
    found = find_jobs(tx, {each["job"] for each in telling})
    closed = closed_parts(tx, found.values())
    for each in telling:
        if each["job"] in closed and closed[each["job"]]:
            for name in _TELLING:
                each.pop(name, None)


_TELLING = frozenset({"warnings", "words", "speakers"})


class Found(NamedTuple):
    """A closure, and the hash of what its recording contains, if that is known."""

    closure: Closure
    content: str | None


def find_closures(tx: Connection, of_jobs: Collection[Job], *, standing: bool) -> list[Found]:
    """The closures of the recordings of these jobs, each with what its recording contains."""
    content = func.coalesce(closures.c.content_sha256, jobs.c.content_sha256).label("content")
    hashes = {job.content_sha256 for job in of_jobs} - {None}
    query: Select[Any] = (
        select(*closures.c, content)
        .join(jobs, jobs.c.id == closures.c.job_id)
        .where(
            closures.c.project.in_({job.project for job in of_jobs}),
            closures.c.recording.in_({job.recording for job in of_jobs}) | content.in_(hashes),
            *(STANDS if standing else ()),
        )
    )
    return [Found(closure_of(row), row.content) for row in tx.execute(query)]


def of_job(job: Job, found: Iterable[Found]) -> list[Closure]:
    """Those of them that are of this job's recording."""
    return [
        each
        for each, content in found
        if each.project == job.project
        and (each.recording == job.recording or (content is not None and content == job.content_sha256))
    ]
