"""Removes uploads that no job will use: deleted, expired and orphaned ones.

First the commit that marks them removed (`spool.store.archive.uploads`), then the bytes, then the row: after
a crash in between, a later round continues. Uploads in the store without a row, of an API that crashed in
between or a part that came too late, are dropped after a day. Run by `spool.background.content_deleter`.
"""

import contextlib
from collections.abc import Iterator
from datetime import timedelta

import structlog

from spool import clock
from spool.errors import NotFound, SpoolError
from spool.objects import ObjectStore
from spool.objects.base import UnfinishedObject
from spool.store import Database
from spool.store.archive import uploads as store
from spool.store.deletions import REFUSED_SECONDS
from spool.tables.uploads import StoredUpload

FOLDER = "jobs/"
STRAY_SECONDS = 24 * 3600.0
"""After this an upload in parts without a row is orphaned: no request takes that long."""
STEP = 50

log = structlog.get_logger(__name__)


def sweep_uploads(db: Database, objects: ObjectStore) -> None:
    """Remove expired uploads, one step's worth, and orphaned ones. Raises StorageError if the database does
    not answer."""
    with db.begin() as tx:
        gone = store.expire(tx, STEP)
    for upload in gone:
        try:
            remove_upload(db, objects, upload)
        except SpoolError as error:
            log.warning("the upload could not be removed yet", upload=upload.id, error=repr(error))
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
    """Uploads that the store began more than `seconds` ago and that have no row. Raises StorageError."""
    receiver = objects.receiver()
    if receiver is None:
        return
    oldest = clock.now() - timedelta(seconds=seconds)
    old = [item for item in receiver.list_unfinished(FOLDER) if item.begun < oldest]
    if old:
        with db.read() as tx:
            known = store.find_job_ids(tx, {_job_of(item.key) for item in old})
        yield from (item for item in old if _job_of(item.key) not in known)


def _job_of(key: str) -> str:
    return key.removeprefix(FOLDER).partition("/")[0]
