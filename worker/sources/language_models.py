"""Language models of projects: fetched from the object store by hash, and cached in the worker's home.

A file whose hash does not match is fetched again. Files that no project uses any more are removed when
another one is fetched.
"""

import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import structlog

from spool.domain.jobs import Job
from spool.domain.search.glossary import parse_reference
from spool.errors import DiskFull, NotFound
from spool.objects import ObjectStore
from spool.objects.integrity import hash_file, open_verified
from spool.settings import Settings
from spool.store.archive.language_models import files_in_use, get_language_model, key_of
from spool.store.database import Database

FOLDER = "language-models"
_SUFFIX = ".arpa"

log = structlog.get_logger(__name__)


def fetch_language_model(
    settings: Settings, db: Database, objects: ObjectStore, job: Job, reference: str | None
) -> Path | None:
    """The file of the language model `reference` (name@version) of the job's project; None if the job names
    none, or one of the settings.

    Raises NotFound if the project or the object store no longer has it, ObjectDamaged, and StorageError.
    """
    if reference is None or reference in settings.language_models or "@" not in reference:
        return None
    name, version = parse_reference(reference)
    with db.read() as tx:
        sha256 = get_language_model(tx, job.project, name, version).sha256
    folder = settings.home / FOLDER
    path = folder / f"{sha256}{_SUFFIX}"
    if _is_intact(path, sha256):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(objects, sha256, path)
    except NotFound:
        raise NotFound(
            f"The file of language model {reference} is not in the object store; "
            "add it again (`spool lm put`)."
        ) from None
    except OSError as error:
        raise DiskFull(
            f"{folder}: the language model {reference} cannot be kept: {error.strerror}"
        ) from error
    _remove_unused(db, folder)
    return path


def _is_intact(path: Path, sha256: str) -> bool:
    try:
        status = path.stat()
        return _digest(path, status.st_mtime_ns, status.st_size) == sha256
    except OSError:
        return False


@lru_cache(maxsize=64)
def _digest(path: Path, _changed: int, _size: int) -> str:
    """The file's SHA-256, cached until its time or size changes."""
    return hash_file(path)[0]


def _fetch(objects: ObjectStore, sha256: str, path: Path) -> None:
    """Write the file complete and verified, or not at all; several jobs may fetch it at once."""
    with (
        open_verified(objects, key_of(sha256), sha256) as source,
        tempfile.NamedTemporaryFile(dir=path.parent, prefix=".fetched-", delete=False) as copy,
    ):
        try:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.close()
            os.replace(copy.name, path)
        except BaseException:
            Path(copy.name).unlink(missing_ok=True)
            raise
    log.info("language model fetched", sha256=sha256)


def _remove_unused(db: Database, folder: Path) -> None:
    """Remove cached files that no project uses; none is deleted while a running job needs it."""
    kept = {path.stem: path for path in folder.glob(f"*{_SUFFIX}")}
    with db.read() as tx:
        used = files_in_use(tx, kept)
    for sha256 in kept.keys() - used:
        kept[sha256].unlink(missing_ok=True)
