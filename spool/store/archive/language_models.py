"""Language models of projects by name and version. A version never changes; its file is in the object store
under its SHA-256."""

from collections.abc import Iterable

from sqlalchemy import Connection, or_, select

from spool.domain.jobs import JobState
from spool.errors import Conflict
from spool.store.archive.versioned import Versions
from spool.store.sql import count_rows
from spool.tables import jobs, language_models
from spool.tables.glossaries import LanguageModel
from spool.tables.record import reader_of

FOLDER = "language-models/"
"""The prefix of the keys of their files."""
_ENDED = [state.value for state in JobState if state.terminal]
_VERSIONS = Versions(
    language_models, reader_of(LanguageModel), "language model", "language models", most_names=200
)
get_language_model = _VERSIONS.get
list_language_models = _VERSIONS.list_latest


def key_of(sha256: str) -> str:
    """The key of the file with this hash."""
    return f"{FOLDER}{sha256}.arpa"


def sha256_of(key: str) -> str:
    """The hash of the file under this key."""
    return key.removeprefix(FOLDER).removesuffix(".arpa")


def add_version(
    tx: Connection,
    project: str,
    name: str,
    *,
    sha256: str,
    size: int,
    ngram_order: int,
    ngrams: int,
    model: str | None,
    author: str,
) -> LanguageModel:
    """The new version, whose file is stored already, or the latest one if that has the same file. Raises
    Conflict if another request adds one at the same moment, and for too many."""
    before = _VERSIONS.find_latest(tx, project, name)
    if before is not None and before.sha256 == sha256:
        return before
    values = {"sha256": sha256, "size": size, "ngram_order": ngram_order, "ngrams": ngrams, "model": model}
    return _VERSIONS.add(tx, project, name, author, values)


def remove_language_model(tx: Connection, project: str, name: str) -> set[str]:
    """Delete a language model with all versions; returns the hashes of files that no version uses any more.
    Raises NotFound, and Conflict while a job that names it has not ended."""
    heard, read = jobs.c.options["language_model"], jobs.c.options["rescore", "model"]
    named = [each.as_string().startswith(f"{name}@", autoescape=True) for each in (heard, read)]
    if count := count_rows(tx, jobs.c.project == project, jobs.c.state.notin_(_ENDED), or_(*named)):
        noun = "job needs" if count == 1 else "jobs need"
        raise Conflict(f"{count} {noun} language model {name}; cancel them, or wait until they have ended.")
    digests = _VERSIONS.remove(tx, project, name)
    return digests - files_in_use(tx, digests)


def files_in_use(tx: Connection, digests: Iterable[str]) -> set[str]:
    """Those of these hashes whose file some version uses."""
    c = language_models.c
    return set(tx.scalars(select(c.sha256).where(c.sha256.in_(list(digests))).distinct()))


def all_versions(tx: Connection) -> list[LanguageModel]:
    """All versions of all projects."""
    c = language_models.c
    return list(map(_VERSIONS.read, tx.execute(select(*c).order_by(c.project, c.name, c.version))))
