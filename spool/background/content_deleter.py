"""Carries deletions out: what was asked for, and what has been kept for as long as its project's rule says.

First the commit that says so (`spool.store.deletions`), then the objects, then the line that they are gone:
a crash in between leaves a line that is still due, and removing what is gone already harms nothing. `Deleter`
is the thread in which API processes do this, one of them at a time, in steps of `STEP` jobs. Running and
waiting jobs are never touched.
"""

import random
import threading
from collections.abc import Iterator, Sequence

import structlog

from spool.domain.retention import EVERY_OTHER, Content, content_of, rule_for
from spool.errors import SpoolError
from spool.failpoints import failpoint
from spool.ids import new_id
from spool.objects import ObjectStore
from spool.settings import Settings
from spool.store import Database
from spool.store import deletions as store
from spool.store.deletions import BY_RETENTION, Deletion
from spool.store.queue import locks

LOCK = "deletions"
STEP = 50
"""Jobs in one transaction."""
_LOCK_SECONDS = 300.0
_STEPS = 200
"""In one round, so that a stop does not wait for millions."""

log = structlog.get_logger(__name__)


def delete_content(
    db: Database, objects: ObjectStore, job_ids: Sequence[str], contents: Sequence[Content], asked_by: str
) -> bool:
    """Delete this of those jobs that have ended; whether the object store let go of it all. What it did not,
    a later sweep takes up. Raises StorageError where the database does not answer."""
    lines = []
    with db.begin() as tx:
        for content in contents:
            lines += store.mark_deleted(tx, job_ids, content, asked_by)
    if lines:
        failpoint("delete.marked")
    return sum(_tried(db, objects, line) for line in lines) == len(lines)


def carry_out(db: Database, objects: ObjectStore, line: Deletion) -> None:
    """Remove the line's objects and say so. Raises StorageError."""
    found = list(_objects_of(objects, line))
    for key in found:
        objects.delete(key)
    failpoint("delete.emptied")
    with db.begin() as tx:
        store.note_deleted(tx, line, len(found))
    if line.done_at is None or found:
        log.info(
            "deleted",
            job=line.job_id,
            project=line.project,
            content=line.content.value,
            asked_by=line.asked_by,
            objects=len(found),
        )


def delete_once(db: Database, objects: ObjectStore, settings: Settings, owner: str) -> int | None:
    """One round: what is due, then what has been kept long enough; how many lines were carried out.

    None when another process is at it. Raises StorageError.
    """
    done = 0
    for _ in range(_STEPS):
        with db.begin() as tx:
            if not locks.try_lock(tx, LOCK, owner, _LOCK_SECONDS):
                return None
        with db.read() as tx:
            lines = store.due_deletions(tx, STEP)
        for line in lines:
            done += _tried(db, objects, line)
        if not lines and not _mark_expired(db, settings):
            break
    return done


class Deleter(threading.Thread):
    """A daemon thread that deletes until stopped."""

    def __init__(self, db: Database, objects: ObjectStore, settings: Settings) -> None:
        super().__init__(name="spool-deleter", daemon=True)
        self._db, self._objects, self._settings = db, objects, settings
        self._owner = new_id("dlr")
        self._stopping = threading.Event()

    def stop(self, timeout: float = 30.0) -> None:
        """Stop soon, and give the lock to whoever deletes next."""
        self._stopping.set()
        if self.is_alive():
            self.join(timeout)

    def run(self) -> None:
        """A round at each interval; what a store refuses is tried again at the next."""
        while not self._stopping.wait(self._settings.retention_sweep_seconds * random.uniform(0.75, 1.25)):  # noqa: S311
            try:
                delete_once(self._db, self._objects, self._settings, self._owner)
            except Exception as error:  # noqa: BLE001 - a promise to delete must outlive whatever happens
                log.warning("deleter", error=repr(error))
        try:
            with self._db.begin() as tx:
                locks.unlock(tx, LOCK, self._owner)
        except SpoolError as error:
            log.warning("deleter", error=repr(error))  # the lock runs out by itself


def _objects_of(objects: ObjectStore, line: Deletion) -> Iterator[str]:
    for item in objects.list(f"jobs/{line.job_id}/"):
        if content_of(item.key) is line.content:
            yield item.key


def _tried(db: Database, objects: ObjectStore, line: Deletion) -> bool:
    """One line that the object store refuses must not keep the others from being carried out."""
    try:
        carry_out(db, objects, line)
    except SpoolError as error:
        log.warning("not deleted yet", job=line.job_id, content=line.content.value, error=repr(error))
        with db.begin() as tx:
            store.postpone(tx, line)
        return False
    return True


def _mark_expired(db: Database, settings: Settings) -> int:
    """Mark a step's worth of what has been kept long enough, due at once; how many."""
    for content in Content:
        for project in _projects(db, settings, content):
            kept_for = rule_for(settings.retention, project).of(content)
            if kept_for is None:
                continue
            with db.begin() as tx:
                old = store.expired_jobs(tx, project, content, kept_for, STEP)
                marked = store.mark_deleted(tx, old, content, BY_RETENTION) if old else []
            if marked:
                failpoint("delete.marked")
                return len(marked)
    return 0


def _projects(db: Database, settings: Settings, content: Content) -> list[str]:
    if EVERY_OTHER not in settings.retention:
        return sorted(settings.retention)
    with db.read() as tx:
        return store.projects_with(tx, content)
