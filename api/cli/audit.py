"""`spool audit`: checks the laws on a live database and object store.

It reads both stores directly, with the settings, so that it works while the API is down and does not depend
on the API's answers.
"""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.connection import Json, err, out
from api.cli.database import open_database
from api.cli.tables import count_of, table_of
from spool import __version__
from spool.audit.rules import RULES, Grace
from spool.domain.pricing import NANOS_PER_SECOND
from spool.errors import StorageError
from spool.objects import object_store
from spool.settings import load_settings
from spool.store import Database
from spool.store.monitoring import keep_audit
from spool.store.queue.unserved import find_unserved
from spool.store.workers import list_recent_workers
from spool.tables.admin import Audited

if TYPE_CHECKING:
    from spool.audit.runner import AuditReport

SHOWN = 20


def audit(
    *,
    objects: Annotated[
        bool,
        Parameter(
            help="Also read every transcript and list every object; without, check the database only.",
            negative_bool="no-",
        ),
    ] = True,
    grace: Annotated[
        float,
        Parameter(
            validator=Number(gte=0), help="Seconds by which sweeps, heartbeats and clocks may be late."
        ),
    ] = 60.0,
    remove_orphans: Annotated[
        bool,
        Parameter(
            help="Delete objects that have belonged to no job for an hour.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that the database and the object store are consistent.

    Exit code 1 if a rule is broken.
    """
    # It imports Celery.
    from spool.audit.runner import audit as run_audit

    settings = load_settings()
    tolerance = Grace(settings.hint_stale_seconds, settings.heartbeat_seconds, grace)
    with open_database(settings) as database:
        store = object_store(settings) if objects else None
        report = run_audit(
            database, store, tolerance, remove_orphans=remove_orphans, retention=settings.retention
        )
        _keep(database, report, objects)
        with database.read() as tx:
            waiting = find_unserved(tx, [worker.seen for worker in list_recent_workers(tx)])
    if as_json:
        document = _document(report) | {"unserved": [asdict(each) for each in waiting]}
        print(json.dumps(document, indent=2))
    else:
        _print(report)
        for each in waiting:
            out.print(
                f"{count_of(each.jobs, 'job')} in {each.queue} waiting for {each.waiting_for}", soft_wrap=True
            )
    raise SystemExit(0 if report.clean else 1)


def _keep(database: Database, report: "AuditReport", objects: bool) -> None:
    """Record the result for `/metrics`. A failure to record it does not fail the audit."""
    breaches = {rule: report.counts[rule] for rule in RULES}
    try:
        with database.begin() as tx:
            keep_audit(tx, Audited(breaches, _count_checked(report), objects, __version__))
    except StorageError as error:
        err.print(f"The result could not be recorded for /metrics: {error.message}")


def _document(report: "AuditReport") -> dict[str, object]:
    return {
        "clean": report.clean,
        "looked_at": _count_checked(report),
        "arriving_objects": report.arriving,
        "leftover_objects": report.leftovers,
        "removed_objects": report.removed,
        "stopped_jobs": report.stopped,
        "died_workers": report.died,
        "cut_off_recordings": report.cut_off,
        "recordings_without_stated_length": report.unstated,
        "unbilled_engine_seconds": {
            "at_least": report.lost_least_ns / NANOS_PER_SECOND,
            "at_most": report.lost_most_ns / NANOS_PER_SECOND,
        },
        "breaches": {rule: report.counts[rule] for rule in RULES},
        "examples": [breach._asdict() for breach in report.breaches],
    }


def _count_checked(report: "AuditReport") -> dict[str, int]:
    names = ("jobs", "chunks", "lines", "workers", "objects")
    return {name: getattr(report, name) for name in names}


def _count(breaches: int) -> Text:
    return Text(str(breaches), style="red" if breaches else "green", justify="right")


def _print(report: "AuditReport") -> None:
    rows = [(_count(report.counts[rule]), rule, meaning) for rule, meaning in RULES.items()]
    out.print(table_of(("breaches", "rule", "rule in words"), rows))
    for breach in report.breaches[:SHOWN]:
        out.print(
            Text.assemble((f"{breach.rule}  ", "red"), f"{breach.subject}  {breach.message}"), soft_wrap=True
        )
    if len(report.breaches) > SHOWN:
        out.print(f"… and {report.counts.total() - SHOWN} more; list them with --json.")
    out.print(
        ", ".join(count_of(number, name[:-1]) for name, number in _count_checked(report).items()) + " checked"
    )
    if report.stopped:
        out.print(
            f"{count_of(report.stopped, 'job')} queued; no API process and no worker is running "
            "(`spool up` starts them)",
            style="yellow",
            soft_wrap=True,
        )
    if report.cut_off:
        out.print(
            f"{count_of(report.cut_off, 'finished job')} with a truncated recording (`complete: false`)",
            style="yellow",
            soft_wrap=True,
        )
    if report.unstated:
        out.print(f"{count_of(report.unstated, 'finished job')} with a file that does not state its length")
    if report.arriving or report.leftovers:
        out.print(
            f"{count_of(report.arriving, 'recent object')} without a job yet; "
            f"{count_of(report.leftovers, 'file')} left by abandoned attempts"
        )
    if report.removed:
        out.print(f"{count_of(report.removed, 'object')} without a job removed")
    if report.lost_most_ns:
        least, most = report.lost_least_ns / NANOS_PER_SECOND, report.lost_most_ns / NANOS_PER_SECOND
        out.print(
            f"{least:.1f} to {most:.1f} s of engine time were not billed: device batches that failed, and "
            f"{count_of(report.died, 'worker')} that crashed"
        )
    out.print("no breaches" if report.clean else f"{report.counts.total()} breaches")
