"""Removes uploads that no job will have: those that were given up, and those that expired.

First the commit that marks them removed (`spool.store.archive.uploads`), then the bytes, then the row: after
a crash in between, a later round goes on. What the store has begun and no row knows, of an API that died in
between or a part that came after the end, is dropped after a day. Run by `spool.background.content_deleter`.
"""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import structlog

from spool.errors import NotFound, SpoolError
from spool.objects import ObjectStore
from spool.objects.base import UnfinishedObject
from spool.store import Database
from spool.store.archive import uploads as store
from spool.store.archive.uploads import StoredUpload
from spool.store.deletions import REFUSED_SECONDS

FOLDER = "jobs/"
STRAY_SECONDS = 24 * 3600.0
"""When an upload in parts without a row is one that nobody will end: no request takes that long."""
STEP = 50

log = structlog.get_logger(__name__)


def sweep_uploads(db: Database, objects: ObjectStore) -> None:
    """Remove what expired, a step's worth, and what nobody knows. Raises StorageError where the database does
    not answer."""
    with db.begin() as tx:
        gone = store.expire(tx, STEP)
    for upload in gone:
        try:
            remove_upload(db, objects, upload)
        except SpoolError as error:
            log.warning("upload not removed yet", upload=upload.id, error=repr(error))
            with db.begin() as tx:
                store.postpone(tx, upload.id, REFUSED_SECONDS)
    receiver = objects.receiver()
    try:
        for stray in find_strays(db, objects, STRAY_SECONDS):
            assert receiver is not None
            with contextlib.suppress(NotFound):
                receiver.abort(stray.key, stray.upload)
            log.info("upload without a row dropped", object=stray.key)
    except SpoolError as error:
        log.warning("unfinished uploads cannot be listed", error=repr(error))


def remove_upload(db: Database, objects: ObjectStore, upload: StoredUpload) -> None:
    """Remove the bytes of an upload that is marked removed, then its row. Raises StorageError."""
    receiver = objects.receiver()
    if receiver is not None:
        with contextlib.suppress(NotFound):
            receiver.abort(upload.key, upload.multipart_id)
    objects.delete(upload.key)
    with db.begin() as tx:
        store.forget(tx, upload.id)
    log.info("upload removed", upload=upload.id, project=upload.project, state=upload.state.value)


def find_strays(db: Database, objects: ObjectStore, seconds: float) -> Iterator[UnfinishedObject]:
    """What the store began longer ago than `seconds`, and no row knows. Raises StorageError."""
    receiver = objects.receiver()
    if receiver is None:
        return
    oldest = datetime.now(UTC) - timedelta(seconds=seconds)
    old = [item for item in receiver.unfinished(FOLDER) if item.begun < oldest]
    if old:
        with db.read() as tx:
            known = store.find_job_ids(tx, {_job_of(item.key) for item in old})
        yield from (item for item in old if _job_of(item.key) not in known)


def _job_of(key: str) -> str:
    return key.removeprefix(FOLDER).partition("/")[0]
