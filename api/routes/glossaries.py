"""The routes of glossaries: add a version, list, show, delete, and suggest phrases from corrections."""

from dataclasses import replace
from typing import Annotated

from fastapi import Path, Query

from api.auth.authentication import CallerDep
from api.queries import ListedProject
from api.services import ServicesDep
from api.submission.bodies import SUBMISSION, json_body
from api.submission.glossaries import add_requested
from spool.domain.search.glossary import MOST_GLOSSARY_BYTES, parse_reference
from spool.schemas.common import ListOf, Project
from spool.schemas.glossaries import GlossaryDetail, GlossaryOut, GlossaryRequest, SuggestionOut
from spool.store.archive import glossaries as store
from spool.store.archive.suggestions import list_suggestions
from spool.store.jobs import phrases_of

MOST_SUGGESTIONS = 1000
Reference = Annotated[str, Path(max_length=80, description="`NAME`, or `NAME@VERSION`.")]
LIMITS = replace(SUBMISSION, text=MOST_GLOSSARY_BYTES)


def put(
    services: ServicesDep,
    caller: CallerDep,
    body: Annotated[GlossaryRequest, json_body(GlossaryRequest, LIMITS)],
) -> GlossaryOut:
    """Add a version of a glossary.

    From phrases, a text or a CSV. If the latest version has the same phrases, that one is returned. Jobs name
    it: `boost: {glossary: NAME}`.
    """
    project = caller.project_for(body.project)
    return GlossaryOut.of(add_requested(services.database, project, body, caller.name))


def list_glossaries(services: ServicesDep, project: ListedProject) -> ListOf[GlossaryOut]:
    """List glossaries.

    The latest version of each, by project and name, without phrases.
    """
    with services.database.read() as tx:
        return ListOf(items=list(map(GlossaryOut.of, store.list_glossaries(tx, project))))


def get_glossary(
    services: ServicesDep, caller: CallerDep, glossary: Reference, project: Project | None = None
) -> GlossaryDetail:
    """Show a glossary.

    A version with its phrases, by default the latest.
    """
    name, version = parse_reference(glossary)
    with services.database.read() as tx:
        kept = store.get_glossary(tx, caller.project_for(project), name, version)
        return GlossaryDetail.of(kept, phrases=phrases_of(tx, kept.sha256))


def suggest(
    services: ServicesDep,
    caller: CallerDep,
    project: Project | None = None,
    glossary: Annotated[
        str | None, Query(max_length=80, description="Leave out the phrases of this glossary.")
    ] = None,
    recordings: Annotated[int, Query(ge=1, le=1000, description="In at least so many recordings.")] = 1,
    limit: Annotated[int, Query(ge=1, le=MOST_SUGGESTIONS)] = 100,
) -> ListOf[SuggestionOut]:
    """List phrases from corrections.

    Names that corrections put in place of what was recognised, the most frequent first, counted by recording.
    They are suggestions: add them to a glossary, or set its `auto_add_after`.
    """
    own = caller.project_for(project)
    reference = None if glossary is None else parse_reference(glossary)
    with services.database.read() as tx:
        known: tuple[str, ...] = ()
        if reference is not None:
            known = phrases_of(tx, store.get_glossary(tx, own, *reference).sha256)
        rows = list_suggestions(tx, own, least=recordings, without=known)
    return ListOf(items=list(map(SuggestionOut.of, rows[:limit])))


def remove(
    services: ServicesDep, caller: CallerDep, glossary: Reference, project: Project | None = None
) -> None:
    """Delete a glossary.

    All its versions. Jobs that named it keep their phrases and still run.
    """
    with services.database.begin() as tx:
        store.remove_glossary(tx, caller.project_for(project), glossary)
