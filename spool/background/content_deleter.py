"""Carries out deletions: requested ones, and those that a project's retention rule demands.

First the commit that marks them (`spool.store.deletions`), then the objects, then the record of their
deletion: after a crash in between the deletion is still due, and deleting an object twice is harmless.
`ContentDeleter` runs this in API processes, one process at a time. Queued and running jobs are never touched.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import structlog

from spool import clock
from spool.background.thread import BackgroundLoop, jitter
from spool.background.upload_sweeper import sweep_uploads
from spool.domain.retention import EVERY_OTHER, Content, content_of, rule_for
from spool.errors import SpoolError
from spool.failpoints import failpoint
from spool.ids import new_id
from spool.objects import ObjectStore
from spool.settings import Settings
from spool.store import Database
from spool.store import deletions as store
from spool.store.archive.language_models import FOLDER, files_in_use, key_of, sha256_of
from spool.store.deletions import BY_RETENTION, LOCK_SECONDS
from spool.store.queue import locks
from spool.tables.deletions import Deletion

LOCK = "deletions"
STEP = 50
"""Jobs in one transaction."""
_STEPS = 200
"""Steps in one round, so that a stop does not wait for millions of jobs."""

_ARRIVING_SECONDS = 3600.0
"""How soon a stored language model must get its row."""

log = structlog.get_logger(__name__)


def delete_content(
    db: Database, objects: ObjectStore, job_ids: Sequence[str], contents: Sequence[Content], asked_by: str
) -> bool:
    """Delete these contents of those jobs that have ended; return whether the object store deleted all of
    them. A later round repeats what it refused. Raises StorageError if the database does not answer."""
    lines = []
    with db.begin() as tx:
        for content in contents:
            lines += store.mark_deleted(tx, job_ids, content, asked_by)
    if lines:
        failpoint("delete.marked")
    return sum(_try_delete(db, objects, line) for line in lines) == len(lines)


def carry_out(db: Database, objects: ObjectStore, line: Deletion) -> None:
    """Delete the line's objects and record it. Raises StorageError."""
    keys = list(_objects_of(objects, line))
    for key in keys:
        objects.delete(key)
    failpoint("delete.emptied")
    with db.begin() as tx:
        store.note_deleted(tx, line, len(keys))
    if line.done_at is None or keys:
        log.info(
            "deleted",
            job=line.job_id,
            project=line.project,
            content=line.content.value,
            asked_by=line.asked_by,
            objects=len(keys),
        )


def delete_once(db: Database, objects: ObjectStore, settings: Settings, owner: str) -> int | None:
    """Carry out due deletions, then mark expired content; return how many deletions were carried out.

    None when another process holds the lock. Raises StorageError.
    """
    done = 0
    for _ in range(_STEPS):
        with db.begin() as tx:
            if not locks.try_lock(tx, LOCK, owner, LOCK_SECONDS):
                return None
        with db.read() as tx:
            lines = store.due_deletions(tx, STEP)
        for line in lines:
            done += _try_delete(db, objects, line)
        if not lines and not _mark_expired(db, settings):
            break
    _delete_unused_language_models(db, objects)
    sweep_uploads(db, objects)
    return done


class ContentDeleter(BackgroundLoop):
    """Deletes due content at each interval."""

    def __init__(self, db: Database, objects: ObjectStore, settings: Settings) -> None:
        super().__init__("spool-deleter", delay=jitter(settings.retention_sweep_seconds))
        self._db, self._objects, self._settings = db, objects, settings
        self._owner = new_id("dlr")

    def run_once(self) -> float:
        """Delete due content; return the seconds until the next round."""
        delete_once(self._db, self._objects, self._settings, self._owner)
        return jitter(self._settings.retention_sweep_seconds)

    def finish(self) -> None:
        """Release the lock for the next process; otherwise it would run out by itself."""
        with self._db.begin() as tx:
            locks.unlock(tx, LOCK, self._owner)


def _delete_unused_language_models(db: Database, objects: ObjectStore) -> None:
    """Files that no version uses: of a request that crashed before its row, or a deletion after it."""
    oldest = clock.now() - timedelta(seconds=_ARRIVING_SECONDS)
    old = [item.key for item in objects.list(FOLDER) if item.modified is not None and item.modified < oldest]
    if not old:
        return
    with db.read() as tx:
        used = {key_of(sha256) for sha256 in files_in_use(tx, map(sha256_of, old))}
    for key in set(old) - used:
        objects.delete(key)
        log.info("deleted", object=key)


def _objects_of(objects: ObjectStore, line: Deletion) -> Iterator[str]:
    for item in objects.list(f"jobs/{line.job_id}/"):
        if content_of(item.key) is line.content:
            yield item.key


def _try_delete(db: Database, objects: ObjectStore, line: Deletion) -> bool:
    """Carry out a deletion, or postpone it if the object store refuses, so that the others continue."""
    try:
        carry_out(db, objects, line)
    except SpoolError as error:
        log.warning("deletion postponed", job=line.job_id, content=line.content.value, error=repr(error))
        with db.begin() as tx:
            store.postpone(tx, line)
        return False
    return True


def _mark_expired(db: Database, settings: Settings) -> int:
    """Mark one step's worth of expired content for deletion, due at once; return how many."""
    for content in Content:
        for project in _projects(db, settings, content):
            kept_for = rule_for(settings.retention, project).of(content)
            if kept_for is None:
                continue
            with db.begin() as tx:
                old = store.find_expired_jobs(tx, project, content, kept_for, STEP)
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
