"""Glossaries by project, name and version. A version never changes; jobs share its list of phrases."""

from sqlalchemy import ColumnElement, Connection, delete, func, select

from spool.domain.search.phrases import PhraseList
from spool.errors import Conflict, NotFound
from spool.store.deletions import drop_phrases
from spool.store.jobs import keep_phrases
from spool.store.sql import now_utc, upsert
from spool.tables import glossaries, phrase_lists
from spool.tables.glossaries import Glossary

MOST_GLOSSARIES = 1000
"""Of a project, by name."""
MOST_VERSIONS = 1000
"""Of a glossary."""


def add_version(
    tx: Connection,
    project: str,
    name: str,
    phrases: PhraseList,
    weight: float,
    author: str,
    auto_add_after: int | None = None,
) -> Glossary:
    """The glossary's new version, or its latest one where that has the same. Raises Conflict where somebody
    else adds one at the same moment, and for too many."""
    latest = tx.scalar(select(func.max(glossaries.c.version)).where(*_by_name(project, name)))
    if latest is not None:
        before = get_glossary(tx, project, name)
        same = (phrases.sha256, weight, auto_add_after)
        if (before.sha256, before.weight, before.auto_add_after) == same:
            return before
        if latest >= MOST_VERSIONS:
            raise Conflict(f"Glossary {name} has {latest} versions; delete it, or take another name.")
    elif _count(tx, project) >= MOST_GLOSSARIES:
        raise Conflict(f"Project {project} has {MOST_GLOSSARIES} glossaries; delete one first.")
    keep_phrases(tx, [phrases])
    values = {
        "project": project,
        "name": name,
        "version": (latest or 0) + 1,
        "sha256": phrases.sha256,
        "count": len(phrases.phrases),
        "weight": weight,
        "auto_add_after": auto_add_after,
        "created_at": now_utc(),
        "created_by": author,
    }
    if upsert(tx, glossaries, values, returning=[glossaries.c.version]).one_or_none() is None:
        raise Conflict(f"Somebody else is changing glossary {name}; look at it, and try again.")
    return get_glossary(tx, project, name)


def get_glossary(tx: Connection, project: str, name: str, version: int | None = None) -> Glossary:
    """A version of a glossary, the latest unless it is given. Raises NotFound."""
    query = select(*glossaries.c).where(*_by_name(project, name)).order_by(glossaries.c.version.desc())
    if version is not None:
        query = query.where(glossaries.c.version == version)
    row = tx.execute(query.limit(1)).one_or_none()
    if row is None:
        wanted = name if version is None else f"{name}@{version}"
        raise NotFound(f"Project {project} has no glossary {wanted}.")
    return Glossary(**row._mapping)


def list_glossaries(tx: Connection, project: str | None = None) -> list[Glossary]:
    """The latest version of every glossary, or of a project's, by project and name."""
    c = glossaries.c
    newest = select(c.project, c.name, func.max(c.version).label("version")).group_by(c.project, c.name)
    if project is not None:
        newest = newest.where(c.project == project)
    latest = newest.subquery()
    same = (c.project == latest.c.project) & (c.name == latest.c.name) & (c.version == latest.c.version)
    query = select(*c).select_from(glossaries.join(latest, same)).order_by(c.project, c.name)
    return [Glossary(**row._mapping) for row in tx.execute(query)]


def phrases_of_versions(tx: Connection, project: str, name: str) -> set[str]:
    """The phrases that any version of a glossary has or had."""
    digests = select(glossaries.c.sha256).where(*_by_name(project, name))
    lists = tx.scalars(select(phrase_lists.c.phrases).where(phrase_lists.c.sha256.in_(digests)))
    return {phrase for phrases in lists for phrase in phrases}


def remove_glossary(tx: Connection, project: str, name: str) -> None:
    """Delete a glossary with all versions; jobs that named it keep their phrases. Raises NotFound."""
    gone = delete(glossaries).where(*_by_name(project, name)).returning(glossaries.c.sha256)
    digests = set(tx.scalars(gone))
    if not digests:
        raise NotFound(f"Project {project} has no glossary {name}.")
    drop_phrases(tx, digests)


def _by_name(project: str, name: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return glossaries.c.project == project, glossaries.c.name == name


def _count(tx: Connection, project: str) -> int:
    query = select(func.count(func.distinct(glossaries.c.name))).where(glossaries.c.project == project)
    return tx.execute(query).scalar_one()
