"""Glossaries by project, name and version. A version never changes; jobs share its list of phrases."""

from sqlalchemy import Connection, select

from spool.domain.search.phrases import PhraseList
from spool.store.archive.versioned import Versions
from spool.store.deletions import drop_phrases
from spool.store.jobs import keep_phrases
from spool.tables import glossaries, phrase_lists
from spool.tables.glossaries import Glossary
from spool.tables.record import reader_of

_VERSIONS = Versions(glossaries, reader_of(Glossary), "glossary", "glossaries", most_names=1000)
get_glossary = _VERSIONS.get
list_glossaries = _VERSIONS.list_latest


def add_version(
    tx: Connection,
    project: str,
    name: str,
    phrases: PhraseList,
    weight: float,
    author: str,
    auto_add_after: int | None = None,
) -> Glossary:
    """The glossary's new version, or its latest one if that is the same. Raises Conflict if another request
    adds one at the same moment, and for too many."""
    values = {"sha256": phrases.sha256, "weight": weight, "auto_add_after": auto_add_after}
    before = _VERSIONS.find_latest(tx, project, name)
    if before is not None and all(getattr(before, key) == value for key, value in values.items()):
        return before
    keep_phrases(tx, [phrases])
    return _VERSIONS.add(tx, project, name, author, values | {"count": len(phrases.phrases)})


def phrases_of_versions(tx: Connection, project: str, name: str) -> set[str]:
    """The phrases that any version of a glossary has or had."""
    digests = select(glossaries.c.sha256).where(*_VERSIONS.of_name(project, name))
    lists = tx.scalars(select(phrase_lists.c.phrases).where(phrase_lists.c.sha256.in_(digests)))
    return {phrase for phrases in lists for phrase in phrases}


def remove_glossary(tx: Connection, project: str, name: str) -> None:
    """Delete a glossary with all versions; jobs that of_name it keep their phrases. Raises NotFound."""
    drop_phrases(tx, _VERSIONS.remove(tx, project, name))
