"""What projects have used of their quotas, and which are held now.

The process that sweeps sums the bills, only for projects that have a quota; running jobs are counted on
demand. `spool.domain.quotas` decides.
"""

from collections.abc import Iterable, Mapping
from datetime import date, datetime

from sqlalchemy import Connection, Row, Select, case, func, select

from spool.domain.quotas import EVERYBODY, Hold, Quota, Use, hold_of, quota_of
from spool.store.queue.queues import RUNNING
from spool.store.sql import lock_name, now_utc, seconds_from_now, today_utc, upsert
from spool.tables import cost_lines, jobs, quota_use

BEFORE_SECONDS = 3600.0
"""How long the sum of a month's past days is trusted; a lost lease may still change one of their lines."""


def find_holds(tx: Connection, quotas: Mapping[str, Quota], projects: Iterable[str]) -> dict[str, Hold]:
    """Those of the projects whose jobs are held now, and why."""
    limited = {project: quota_of(quotas, project) for project in projects}
    limited = {project: quota for project, quota in limited.items() if quota is not None}
    if not limited:
        return {}
    uses, now = _uses(tx, list(limited))
    by_project = {project: hold_of(quota, uses[project], now) for project, quota in limited.items()}
    return {project: hold for project, hold in by_project.items() if hold is not None}


def still_free(
    tx: Connection, quotas: Mapping[str, Quota], project: str, *, wait: bool = True
) -> bool | None:
    """Whether the project may have one more job, with its row locked until this transaction ends. None if
    another transaction holds the row, whose process may be frozen, unless we `wait`."""
    if quota_of(quotas, project) is None:
        return True
    own = select(quota_use.c.project).where(quota_use.c.project == project)
    if tx.scalar(own) is None and not _enter(tx, project, wait=wait):
        return None
    if tx.scalar(own.with_for_update(skip_locked=not wait)) is None:
        return None
    return project not in find_holds(tx, quotas, [project])


def _enter(tx: Connection, project: str, *, wait: bool) -> bool:
    """Create the project's row; False if another transaction is just creating it and we do not `wait`."""
    # On PostgreSQL an insert waits until another insert of the same key is committed.
    if not lock_name(tx, f"quota_use {project}", wait=wait):
        return False
    stale = {"project": project, "day": today_utc(), "updated_at": seconds_from_now(-BEFORE_SECONDS)}
    upsert(tx, quota_use, stale)
    return True


def refresh_use(tx: Connection, quotas: Mapping[str, Quota]) -> None:
    """Sum the bills of the projects that have a quota of audio or money."""
    billed = {name: quota for name, quota in quotas.items() if _is_of_bills(quota)}
    if not billed:
        return
    today = tx.scalar(select(today_utc()))
    assert today is not None
    sums = {row.project: row for row in tx.execute(_sums().where(cost_lines.c.day == today))}
    kept = {row.project: row for row in tx.execute(_select_use())}
    projects = sorted((sums.keys() | kept.keys() | billed.keys()) - {EVERYBODY})
    projects = [name for name in projects if _is_of_bills(quota_of(quotas, name))]
    stale = [name for name in projects if not _is_fresh(kept.get(name), today)]
    before = _before(tx, today, stale)
    for name in projects:
        day = sums.get(name)
        samples, nanos = (0, 0) if day is None else (int(day.samples), int(day.nanos))
        past = before[name] if name in before else int(kept[name].before_nanos)
        _keep(tx, name, today, samples, past + nanos, past, anew=name in before)


def _is_of_bills(quota: Quota | None) -> bool:
    return quota is not None and (quota.hours_a_day is not None or quota.spend_a_month is not None)


def _sums() -> Select[tuple[str, int, int]]:
    return (
        select(
            cost_lines.c.project,
            func.sum(cost_lines.c.audio_samples).label("samples"),
            func.sum(cost_lines.c.cost_nanos).label("nanos"),
        )
        .where(~cost_lines.c.wasted)
        .group_by(cost_lines.c.project)
    )


def _select_use() -> Select[tuple[str, date, int, bool]]:
    fresh = quota_use.c.updated_at > seconds_from_now(-BEFORE_SECONDS)
    return select(quota_use.c.project, quota_use.c.day, quota_use.c.before_nanos, fresh.label("fresh"))


def _is_fresh(row: Row[tuple[str, date, int, bool]] | None, today: date) -> bool:
    return row is not None and bool(row.fresh) and row.day == today


def _before(tx: Connection, today: date, projects: list[str]) -> dict[str, int]:
    """What these projects were billed this month before today."""
    if not projects:
        return {}
    lines = _sums().where(
        cost_lines.c.day >= today.replace(day=1),
        cost_lines.c.day < today,
        cost_lines.c.project.in_(projects),
    )
    return dict.fromkeys(projects, 0) | {row.project: int(row.nanos) for row in tx.execute(lines)}


def _keep(
    tx: Connection, project: str, day: date, samples: int, month: int, before: int, *, anew: bool
) -> None:
    sums = {"day": day, "day_samples": samples, "month_nanos": month, "before_nanos": before}
    # `updated_at` tells when the past days were summed.
    renewed = {"updated_at": now_utc()} if anew else {}
    row = {"project": project, **sums, "updated_at": now_utc()}
    upsert(tx, quota_use, row, update=sums | renewed)


def _uses(tx: Connection, projects: list[str]) -> tuple[dict[str, Use], datetime]:
    now, today = tx.execute(select(now_utc(), today_utc())).one()
    left = jobs.c.forecast_seconds - jobs.c.done_seconds
    running = {
        row.project: row
        for row in tx.execute(
            select(
                jobs.c.project,
                func.count().label("number"),
                func.sum(case((left > 0, left), else_=0.0)).label("seconds"),
            )
            .where(RUNNING, jobs.c.project.in_(projects))
            .group_by(jobs.c.project)
        )
    }
    used = {
        row.project: row for row in tx.execute(select(quota_use).where(quota_use.c.project.in_(projects)))
    }
    return {name: _use_of(used.get(name), running.get(name), today) for name in projects}, now


def _use_of(
    used: Row[tuple[object, ...]] | None, running: Row[tuple[str, int, float]] | None, today: date
) -> Use:
    samples = month = 0
    if used is not None and (used.day.year, used.day.month) == (today.year, today.month):
        month = int(used.month_nanos)
        samples = int(used.day_samples) if used.day == today else 0
    if running is None:
        return Use(samples, month)
    return Use(samples, month, int(running.number), float(running.seconds or 0.0))
