"""Language models of projects: fetched from the object store by their hash, and kept beside the worker.

A file that is not what was stored is fetched again. Files that no project has any more are removed when
another one is fetched. Knows rows, objects and a folder; reads no n-grams.
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


def fetched_language_model(
    settings: Settings, db: Database, objects: ObjectStore, job: Job, named: str | None
) -> Path | None:
    """The file of the language model that the job calls `named`, where it is one of its project; None where
    that is none, or one of the settings.

    Raises NotFound where the project or the object store has it no more, ObjectDamaged, and StorageError.
    """
    if named is None or named in settings.language_models or "@" not in named:
        return None
    name, version = parse_reference(named)
    with db.read() as tx:
        sha256 = get_language_model(tx, job.project, name, version).sha256
    folder = settings.home / FOLDER
    path = folder / f"{sha256}{_SUFFIX}"
    if _is_good(path, sha256):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(objects, sha256, path)
    except NotFound:
        raise NotFound(
            f"The file of language model {named} is not in the object store; add it again (`spool lm put`)."
        ) from None
    except OSError as error:
        raise DiskFull(f"{folder}: the language model {named} cannot be kept: {error.strerror}") from error
    _remove_unused(db, folder)
    return path


def _is_good(path: Path, sha256: str) -> bool:
    try:
        facts = path.stat()
        return _digest(path, facts.st_mtime_ns, facts.st_size) == sha256
    except OSError:
        return False


@lru_cache(maxsize=64)
def _digest(path: Path, _changed: int, _size: int) -> str:
    """Of the file as it is now; read again only when it has changed."""
    return hash_file(path)[0]


def _fetch(objects: ObjectStore, sha256: str, path: Path) -> None:
    """Complete and verified, or not at all: several jobs may fetch it at once."""
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
    """No job that runs has one of these: none is deleted while a job needs it."""
    kept = {path.stem: path for path in folder.glob(f"*{_SUFFIX}")}
    with db.read() as tx:
        used = files_in_use(tx, kept)
    for sha256 in kept.keys() - used:
        kept[sha256].unlink(missing_ok=True)
