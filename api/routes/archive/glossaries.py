"""The routes of glossaries: add a version, list, show, delete, and suggest phrases from corrections."""

from dataclasses import asdict, replace
from typing import Annotated

from fastapi import Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import Principal
from api.openapi.jobs import answer, describe, json_body, no_content, problems
from api.services import Services, ServicesDep
from api.submission.bodies import SUBMISSION, read_json
from api.submission.glossaries import add_requested
from spool.domain.search.glossary import MOST_BYTES, parse_reference
from spool.schemas.common import Project
from spool.schemas.examples import glossaries as examples
from spool.schemas.glossaries import (
    GlossaryDetail,
    GlossaryList,
    GlossaryOut,
    GlossaryRequest,
    SuggestionList,
    SuggestionOut,
)
from spool.store.archive import glossaries as store
from spool.store.archive.suggestions import list_suggestions
from spool.store.jobs import phrases_of

MOST_SUGGESTIONS = 1000
Reference = Annotated[str, Path(max_length=80, description="`NAME`, or `NAME@VERSION`.")]
BODY = replace(SUBMISSION, text=MOST_BYTES)

PUT = describe(
    "Add a version of a glossary",
    answer(201, "The latest version, which has the same phrases.", GlossaryOut, examples.GLOSSARY),
    problems("malformed", "too_slow", "too_large", "conflict", "invalid_request"),
    status_code=201,
    openapi_extra=json_body(GlossaryRequest, examples.REQUEST),
)
LIST = describe(
    "List glossaries", answer(200, "The latest version of each.", GlossaryList, examples.GLOSSARIES)
)
ONE = describe(
    "Show a glossary",
    answer(200, "The version and its phrases.", GlossaryDetail, examples.WITH_PHRASES),
    problems("not_found", "invalid_request"),
)
REMOVE = describe(
    "Delete a glossary",
    no_content("Every version was deleted."),
    problems("not_found"),
    status_code=204,
)

SUGGEST = describe(
    "List phrases from corrections",
    answer(200, "The most frequent first.", SuggestionList, examples.SUGGESTIONS),
    problems("not_found", "invalid_request"),
)


async def put(request: Request, services: ServicesDep, caller: CallerDep) -> GlossaryOut:
    """Add a version of a glossary, from phrases, a text or a CSV. Jobs name it: `boost: {glossary: NAME}`."""
    body = await read_json(request, GlossaryRequest, BODY)
    return await run_in_threadpool(_put, services, caller, body)


def _put(services: Services, caller: Principal, body: GlossaryRequest) -> GlossaryOut:
    project = caller.project_for(body.project)
    added = add_requested(services.database, project, body, caller.name)
    return GlossaryOut(**asdict(added))


def list_glossaries(services: ServicesDep, caller: CallerDep, project: Project | None = None) -> GlossaryList:
    """The latest version of each glossary, by project and name, without phrases."""
    if project is not None and not caller.sees(project):
        return GlossaryList(items=[])
    with services.database.read() as tx:
        rows = store.list_glossaries(tx, caller.project or project)
    return GlossaryList(items=[GlossaryOut(**asdict(row)) for row in rows])


def get_glossary(
    services: ServicesDep, caller: CallerDep, glossary: Reference, project: Project | None = None
) -> GlossaryDetail:
    """A version of a glossary with its phrases, by default the latest."""
    name, version = parse_reference(glossary)
    with services.database.read() as tx:
        kept = store.get_glossary(tx, caller.project_for(project), name, version)
        phrases = phrases_of(tx, kept.sha256)
    return GlossaryDetail(**asdict(kept), phrases=list(phrases))


def suggest(
    services: ServicesDep,
    caller: CallerDep,
    project: Project | None = None,
    glossary: Annotated[
        str | None, Query(max_length=80, description="Leave out the phrases of this glossary.")
    ] = None,
    recordings: Annotated[int, Query(ge=1, le=1000, description="In at least so many recordings.")] = 1,
    limit: Annotated[int, Query(ge=1, le=MOST_SUGGESTIONS)] = 100,
) -> SuggestionList:
    """Names that corrections put in place of what was recognised, counted by recording. They are suggestions:
    add them to a glossary, or set its `auto_add_after`."""
    own = caller.project_for(project)
    reference = None if glossary is None else parse_reference(glossary)
    with services.database.read() as tx:
        known: tuple[str, ...] = ()
        if reference is not None:
            known = phrases_of(tx, store.get_glossary(tx, own, *reference).sha256)
        rows = list_suggestions(tx, own, least=recordings, without=known)
    return SuggestionList(items=[SuggestionOut(**asdict(row)) for row in rows[:limit]])


def remove(
    services: ServicesDep, caller: CallerDep, glossary: Reference, project: Project | None = None
) -> Response:
    """Delete all versions of a glossary. Jobs that named it keep their phrases and still run."""
    with services.database.begin() as tx:
        store.remove_glossary(tx, caller.project_for(project), glossary)
    return Response(status_code=204)
