"""Phrases from corrections: what people wrote in place of what was recognised, counted by recording.

A person takes them into a glossary. A glossary with `auto_add_after` takes them up by itself when a job names
it; what a person removed from it stays away.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Select, func, select

from spool.domain.archive.edits import find_standing_edits
from spool.domain.search.phrases import MOST_PHRASES, phrase_list
from spool.store.archive.closed import closed_parts
from spool.store.archive.glossaries import add_version, phrases_of_versions
from spool.store.jobs import phrases_of
from spool.store.rows import find_jobs
from spool.store.transcripts.edits import edit_of
from spool.tables import edits, jobs
from spool.tables.glossaries import Glossary

MOST_EDITS = 20_000
"""The latest ones of a project, which are looked at."""
AUTHOR = "corrections"
"""Of a version that a glossary took up by itself."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A phrase, in how many recordings corrections wrote it, and the latest job with it and its words."""

    phrase: str
    recordings: int
    job: str
    first_word: int
    last_word: int


def list_suggestions(
    tx: Connection, project: str, *, least: int = 1, without: Iterable[str] = ()
) -> list[Suggestion]:
    """What stands of the names that corrections of the project wrote in at least `least` recordings, the
    commonest first; those of `without`, in any case of letters, are left out, and so are all of recordings of
    which something is closed."""
    known = {phrase.casefold() for phrase in without}
    written = select(edits.c.job_id).where(edits.c.names.is_not(None))
    recording = func.coalesce(jobs.c.rerun_of, jobs.c.id).label("recording")
    latest: Select[Any] = (
        select(*edits.c, recording)
        .join(jobs, jobs.c.id == edits.c.job_id)
        .where(jobs.c.project == project, edits.c.job_id.in_(written))
        .order_by(edits.c.created_at.desc(), edits.c.job_id, edits.c.revision.desc())
        .limit(MOST_EDITS)
    )
    found = tx.execute(latest).all()
    closed = closed_parts(tx, find_jobs(tx, {row.job_id for row in found}).values())
    open_rows = [row for row in found if not closed[row.job_id]]
    rows = sorted(open_rows, key=lambda row: (row.job_id, row.revision))
    recordings: dict[str, set[str]] = {}
    places: dict[str, Suggestion] = {}
    for job_id, events in groupby(rows, key=lambda row: str(row.job_id)):
        by_revision = {row.revision: row for row in events}
        for edit in find_standing_edits([edit_of(row) for row in by_revision.values()]):
            for name in by_revision[edit.revision].names or ():
                if name.casefold() not in known:
                    recordings.setdefault(name, set()).add(by_revision[edit.revision].recording)
                    places[name] = Suggestion(name, 0, job_id, edit.first_word, edit.last_word)
    counted = [replace(places[name], recordings=len(where)) for name, where in recordings.items()]
    common = [each for each in counted if each.recordings >= least]
    return sorted(common, key=lambda each: (-each.recordings, each.phrase))


def add_suggestions(tx: Connection, glossary: Glossary) -> Glossary:
    """The version of the glossary that has what its project's corrections wrote often enough: itself where
    that is nothing new. Raises Conflict as `add_version` does."""
    if glossary.auto_add_after is None:
        return glossary
    phrases = phrases_of(tx, glossary.sha256)
    new = list_suggestions(tx, glossary.project, least=glossary.auto_add_after, without=phrases)
    if new:
        removed = {phrase.casefold() for phrase in phrases_of_versions(tx, glossary.project, glossary.name)}
        new = [each for each in new if each.phrase.casefold() not in removed]
    new = new[: MOST_PHRASES - len(phrases)]
    if not new:
        return glossary
    grown = phrase_list([*phrases, *(each.phrase for each in new)])
    return add_version(
        tx, glossary.project, glossary.name, grown, glossary.weight, AUTHOR, glossary.auto_add_after
    )
