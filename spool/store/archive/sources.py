"""Watched folders and buckets: the rules, which is to be listed now, and every version of a file in them.

A version of a file has one row, written in the commit that creates its job, so that it is submitted once,
however often and by whomever it is listed. One process at a time lists a source, under a lease that each
block renews; pausing or removing a source ends the listing at its next block.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    case,
    delete,
    exists,
    func,
    insert,
    null,
    or_,
    select,
    update,
)

from spool.errors import Conflict, LeaseLost
from spool.ids import new_id
from spool.store.jobs import NewJob, create_job, find_submitted
from spool.store.sql import (
    Page,
    count_by,
    fetch_page,
    find_row,
    now_utc,
    read_clock,
    seconds_from_now,
    upsert,
)
from spool.tables import source_items, source_marks, sources
from spool.tables.record import reader_of, values_of
from spool.tables.sources import Item, ItemState, NewSource, WatchedSource

MAX_SOURCES = 50
"""The most sources of one project."""
LEASE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What to change; None leaves a field as it is."""

    name: str | None = None
    request: dict[str, Any] | None = None
    every_seconds: float | None = None
    settle_seconds: float | None = None
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class NewItem:
    """What to record of a version: the job that it makes, or why it makes none; neither while its file may
    still be growing."""

    place: str
    version: str
    state: ItemState
    reason: str | None = None
    job: NewJob | None = None


@dataclass(frozen=True, slots=True)
class SourceTurn:
    """A source for this process to look at now: all of it, or the `marked` files."""

    source: WatchedSource
    listing: bool
    marked: list[str]
    now: datetime


@dataclass(frozen=True, slots=True)
class SourceListing:
    """What a turn found: how many files there are, and how many of them may still be growing."""

    files: int
    settling: int


def create_source(tx: Connection, new: NewSource) -> WatchedSource:
    """Create a source, to be listed at once. Raises Conflict if the project has `MAX_SOURCES`, or already
    watches the address."""
    watched = list_sources(tx, new.project)
    if len(watched) >= MAX_SOURCES:
        raise Conflict(
            f"Project {new.project} has {MAX_SOURCES} sources, the most allowed; remove one first."
        )
    if same := [each for each in watched if each.address == new.address]:
        raise Conflict(f"Project {new.project} already watches {new.address}, as {same[0].id}.")
    source_id = new_id("src")
    values = values_of(new, NewSource)
    tx.execute(insert(sources).values(id=source_id, **values, created_at=now_utc(), due_at=now_utc()))
    return get_source(tx, source_id)


def get_source(tx: Connection, source_id: str) -> WatchedSource:
    """The source. Raises NotFound."""
    query = select(*sources.c).where(sources.c.id == source_id)
    return _source_of(find_row(tx, query, f"There is no source {source_id}."))


def list_sources(tx: Connection, project: str | None = None) -> list[WatchedSource]:
    """Every source, or a project's, newest first."""
    query = select(*sources.c).order_by(sources.c.created_at.desc(), sources.c.id)
    if project is not None:
        query = query.where(sources.c.project == project)
    return [_source_of(row) for row in tx.execute(query)]


def item_counts(tx: Connection, source_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Versions of files by state, for each of these sources."""
    counted = (
        select(source_items.c.source_id, source_items.c.state, func.count())
        .where(source_items.c.source_id.in_(source_ids))
        .group_by(source_items.c.source_id, source_items.c.state)
    )
    counts: dict[str, dict[str, int]] = {source_id: {} for source_id in source_ids}
    for source_id, state, number in tx.execute(counted):
        counts[source_id][state] = number
    return counts


def list_items(
    tx: Connection, source_id: str, state: str | None = None, cursor: str | None = None, limit: int = 50
) -> Page[Item]:
    """Up to `limit` (1 to 1000) versions of files of a source, newest first, after `cursor`."""
    query = select(*source_items.c).where(source_items.c.source_id == source_id)
    if state is not None:
        query = query.where(source_items.c.state == state)
    scope = ("source items", source_id, state)
    return fetch_page(tx, source_items, query, _item_of, scope, cursor=cursor, limit=limit)


def pause_source(tx: Connection, source_id: str) -> WatchedSource:
    """Stop listing it until it is resumed. Its jobs continue. Raises NotFound."""
    get_source(tx, source_id)
    query = update(sources).where(sources.c.id == source_id, sources.c.paused_at.is_(None))
    tx.execute(query.values(paused_at=now_utc()))
    return get_source(tx, source_id)


def check_source(tx: Connection, source_id: str, *, resume: bool = False) -> WatchedSource:
    """List it now, and with `resume` on schedule again. Raises NotFound; Conflict for a paused one."""
    source = get_source(tx, source_id)
    if source.paused_at is not None and not resume:
        raise Conflict(f"Source {source_id} is paused; resume it first.")
    query = update(sources).where(sources.c.id == source_id)
    tx.execute(query.values(paused_at=null(), due_at=now_utc()))
    return get_source(tx, source_id)


def change_source(tx: Connection, source_id: str, change: SourceChange) -> WatchedSource:
    """Change the rule. A shorter interval applies at once; a resumed source is listed now; a listing in
    progress ends with the old rule. Raises NotFound."""
    source = get_source(tx, source_id)
    given = {
        "name": change.name,
        "request": change.request,
        "every_seconds": change.every_seconds,
        "settle_seconds": change.settle_seconds,
    }
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if change.every_seconds is not None and change.every_seconds < source.every_seconds:
        soon = seconds_from_now(change.every_seconds)
        values["due_at"] = case((sources.c.due_at > soon, soon), else_=sources.c.due_at)
    if values:
        tx.execute(update(sources).where(sources.c.id == source_id).values(**values))
    if change.paused:
        return pause_source(tx, source_id)
    if change.paused is False and source.paused_at is not None:
        return check_source(tx, source_id, resume=True)
    return get_source(tx, source_id)


def remove_source(tx: Connection, source_id: str) -> None:
    """Forget it with all it found. Its jobs are kept. Raises NotFound."""
    get_source(tx, source_id)
    tx.execute(delete(sources).where(sources.c.id == source_id))


def mark_places(tx: Connection, source_id: str, places: Iterable[str]) -> int:
    """Have these files looked at before the next listing; returns how many there are."""
    rows = [{"source_id": source_id, "place": place} for place in dict.fromkeys(places)]
    if rows:
        # A marked file is marked again: it may have changed since it was looked at.
        upsert(tx, source_marks, {"created_at": now_utc()}, rows, update={"created_at": now_utc()})
    return len(rows)


def take_turn(tx: Connection, owner: str) -> SourceTurn | None:
    """The source that has been due for longest, under a lease for this process."""
    marked = exists(select(source_marks.c.source_id).where(source_marks.c.source_id == sources.c.id))
    free = or_(sources.c.lease_until.is_(None), sources.c.lease_until < now_utc())
    wanted = (
        select(sources.c.id, (sources.c.due_at <= now_utc()).label("listing"))
        .where(sources.c.paused_at.is_(None), free, or_(sources.c.due_at <= now_utc(), marked))
        .order_by(sources.c.due_at)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    row = tx.execute(wanted).one_or_none()
    if row is None:
        return None
    lease = {"lease_owner": owner, "lease_until": seconds_from_now(LEASE_SECONDS)}
    tx.execute(update(sources).where(sources.c.id == row.id).values(**lease))
    marks = select(source_marks.c.place).where(source_marks.c.source_id == row.id)
    now = read_clock(tx)
    return SourceTurn(get_source(tx, row.id), bool(row.listing), list(tx.scalars(marks)), now)


def find_items(tx: Connection, source_id: str, places: Sequence[str]) -> Mapping[tuple[str, str], Item]:
    """The rows of these files, by place and version."""
    of_files = (source_items.c.source_id == source_id, source_items.c.place.in_(places))
    rows = map(_item_of, tx.execute(select(*source_items.c).where(*of_files)))
    return {(row.place, row.version): row for row in rows}


def note_items(tx: Connection, turn: SourceTurn, owner: str, new: Sequence[NewItem]) -> int:
    """Record these versions, with the jobs that they make, and renew the lease; returns how many jobs are
    new.

    Raises LeaseLost if the source was paused, removed, or is listed by another process now.
    """
    held = (sources.c.id == turn.source.id, sources.c.lease_owner == owner, sources.c.paused_at.is_(None))
    renewed = update(sources).where(*held).values(lease_until=seconds_from_now(LEASE_SECONDS))
    if tx.execute(renewed).rowcount != 1:
        raise LeaseLost(f"Source {turn.source.id} was paused, removed or taken by another process.")
    submitted = 0
    for item in new:
        of_file = (source_items.c.source_id == turn.source.id, source_items.c.place == item.place)
        settling = delete(source_items).where(*of_file, source_items.c.state == "settling")
        if item.state == "settling":  # of one that grows, the latest version
            settling = settling.where(source_items.c.version != item.version)
        tx.execute(settling)
        known = None
        if item.job is not None and item.job.deduplicate:
            known = find_submitted(tx, [item.job]).get(item.job.submission_sha256)
        job_id = known or (new_id("job") if item.job else None)
        row: dict[str, Any] = {
            "id": new_id("itm"),
            "source_id": turn.source.id,
            "place": item.place,
            "version": item.version,
        }
        row |= {"state": item.state, "reason": item.reason, "job_id": job_id, "created_at": now_utc()}
        written = upsert(tx, source_items, row, returning=[source_items.c.id]).one_or_none()
        if written is not None and item.job is not None and known is None:
            create_job(tx, replace(item.job, id=job_id))
            submitted += 1
    return submitted


def end_turn(
    tx: Connection, turn: SourceTurn, owner: str, seen: SourceListing | None, error: str | None
) -> None:
    """Release the lease: after what was `seen`, or after a failure, which the next listing tries again.

    The source is listed again as soon as its settling files can have settled.
    """
    values: dict[str, Any] = {"lease_owner": null(), "lease_until": null()}
    if turn.listing or error is not None:
        rule = select(sources.c.every_seconds).where(sources.c.id == turn.source.id)
        every = tx.scalar(rule) or turn.source.every_seconds  # it may have been changed since
        settle = turn.source.settle_seconds if seen is not None and seen.settling else every
        values["due_at"] = seconds_from_now(min(every, settle))
    elif seen is not None and seen.settling:
        soon = seconds_from_now(turn.source.settle_seconds)
        values["due_at"] = case((sources.c.due_at > soon, soon), else_=sources.c.due_at)
    if error is not None:
        since = func.coalesce(sources.c.failing_since, now_utc())
        values |= {"error": error, "failing_since": since}
    elif turn.listing:
        cleared = {"error": null(), "failing_since": null()}
        values |= {**cleared, "listed_at": now_utc(), "files": seen.files if seen is not None else null()}
    held = (sources.c.id == turn.source.id, sources.c.lease_owner == owner)
    tx.execute(update(sources).where(*held).values(**values))
    # Files marked in the meantime are looked at in a separate turn.
    done: ColumnElement[bool] = source_marks.c.created_at <= turn.now
    if error is None or not turn.listing:
        tx.execute(delete(source_marks).where(source_marks.c.source_id == turn.source.id, done))


@dataclass(frozen=True, slots=True)
class SourceGauges:
    """Sources by state, versions of files by state, and since when the most overdue listing has been due
    (None: none is)."""

    sources: Mapping[str, int]
    files: Mapping[str, int]
    due: datetime | None


def source_gauges(tx: Connection) -> SourceGauges:
    """The counts of all projects' sources."""
    state = case(
        (sources.c.paused_at.is_not(None), "paused"),
        (sources.c.error.is_not(None), "failing"),
        else_="watching",
    )
    due = tx.scalar(
        select(func.min(sources.c.due_at)).where(
            sources.c.paused_at.is_(None), sources.c.lease_until.is_(None), sources.c.due_at <= now_utc()
        )
    )
    return SourceGauges(count_by(tx, state), count_by(tx, source_items.c.state), due)


_source_of = reader_of(WatchedSource)
_item_of = reader_of(Item)
