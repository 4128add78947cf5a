"""Language models of projects by name and version. A version never changes; its file is in the object store
under its SHA-256."""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, delete, func, or_, select

from spool.domain.jobs import JobState
from spool.errors import Conflict, NotFound
from spool.store.sql import now_utc, upsert
from spool.tables import jobs, language_models
from spool.tables.glossaries import LanguageModel

FOLDER = "language-models/"
"""The prefix of the keys of their files."""
MOST_MODELS = 200
"""The most language models of a project."""
MOST_VERSIONS = 1000
"""The most versions of a language model."""
_ENDED = [state.value for state in JobState if state.terminal]


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
    latest = tx.scalar(select(func.max(language_models.c.version)).where(*_by_name(project, name)))
    if latest is not None:
        before = get_language_model(tx, project, name)
        if before.sha256 == sha256:
            return before
        if latest >= MOST_VERSIONS:
            raise Conflict(
                f"Language model {name} has {latest} versions, the most allowed; use another name."
            )
    elif _count(tx, project) >= MOST_MODELS:
        raise Conflict(f"Project {project} has {MOST_MODELS} language models; delete one first.")
    values = {
        "project": project,
        "name": name,
        "version": (latest or 0) + 1,
        "sha256": sha256,
        "size": size,
        "ngram_order": ngram_order,
        "ngrams": ngrams,
        "model": model,
        "created_at": now_utc(),
        "created_by": author,
    }
    if upsert(tx, language_models, values, returning=[language_models.c.version]).one_or_none() is None:
        raise Conflict(f"Language model {name} is being changed by another request; try again.")
    return get_language_model(tx, project, name)


def get_language_model(tx: Connection, project: str, name: str, version: int | None = None) -> LanguageModel:
    """A version of a language model, by default the latest. Raises NotFound."""
    c = language_models.c
    query = select(*c).where(*_by_name(project, name)).order_by(c.version.desc())
    if version is not None:
        query = query.where(c.version == version)
    row = tx.execute(query.limit(1)).one_or_none()
    if row is None:
        wanted = name if version is None else f"{name}@{version}"
        raise NotFound(f"Project {project} has no language model {wanted}.")
    return LanguageModel(**row._mapping)


def list_language_models(tx: Connection, project: str | None = None) -> list[LanguageModel]:
    """The latest version of every language model, or of a project's, by project and name."""
    c = language_models.c
    newest = select(c.project, c.name, func.max(c.version).label("version")).group_by(c.project, c.name)
    if project is not None:
        newest = newest.where(c.project == project)
    latest = newest.subquery()
    same = (c.project == latest.c.project) & (c.name == latest.c.name) & (c.version == latest.c.version)
    query = select(*c).select_from(language_models.join(latest, same)).order_by(c.project, c.name)
    return [LanguageModel(**row._mapping) for row in tx.execute(query)]


def remove_language_model(tx: Connection, project: str, name: str) -> set[str]:
    """Delete a language model with all versions; returns the hashes of files that no version uses any more.
    Raises NotFound, and Conflict while a job that names it has not ended."""
    heard, read = jobs.c.options["language_model"], jobs.c.options["rescore", "model"]
    named = [each.as_string().startswith(f"{name}@", autoescape=True) for each in (heard, read)]
    waiting = select(func.count()).where(jobs.c.project == project, jobs.c.state.notin_(_ENDED), or_(*named))
    if count := tx.execute(waiting).scalar_one():
        noun = "job needs" if count == 1 else "jobs need"
        raise Conflict(f"{count} {noun} language model {name}; cancel them, or wait until they have ended.")
    gone = delete(language_models).where(*_by_name(project, name)).returning(language_models.c.sha256)
    digests = set(tx.scalars(gone))
    if not digests:
        raise NotFound(f"Project {project} has no language model {name}.")
    return digests - files_in_use(tx, digests)


def files_in_use(tx: Connection, digests: Iterable[str]) -> set[str]:
    """Those of these hashes whose file some version uses."""
    c = language_models.c
    return set(tx.scalars(select(c.sha256).where(c.sha256.in_(list(digests))).distinct()))


def all_versions(tx: Connection) -> list[LanguageModel]:
    """All versions of all projects."""
    c = language_models.c
    query = select(*c).order_by(c.project, c.name, c.version)
    return [LanguageModel(**row._mapping) for row in tx.execute(query)]


def _by_name(project: str, name: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return language_models.c.project == project, language_models.c.name == name


def _count(tx: Connection, project: str) -> int:
    c = language_models.c
    return tx.execute(select(func.count(func.distinct(c.name))).where(c.project == project)).scalar_one()
