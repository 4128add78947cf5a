"""The route of the search over all words of all transcripts that the caller may read."""

from typing import Annotated

from fastapi import Query, Response

from api.auth.authentication import CallerDep
from api.openapi.jobs import Cursor, answer, describe
from api.presenters.responses import json_response, to_utc
from api.presenters.search import present_hit
from api.services import ServicesDep
from spool.domain.archive.query import parse_query
from spool.schemas.common import Moment, Project, Versions
from spool.schemas.examples import search as examples
from spool.schemas.search import SearchPage
from spool.store import jobs as store
from spool.store.transcripts.search import Search
from spool.store.transcripts.search import search as search_passages

SEARCH = describe(
    "Search the transcripts",
    answer(200, "A page of hits, the newest recording first.", SearchPage, examples.SEARCH_PAGE),
)


def search(
    services: ServicesDep,
    caller: CallerDep,
    q: Annotated[
        str,
        Query(
            min_length=1,
            max_length=500,
            description='Words near one another; `"a phrase"`, `begin*`, `sounds~`, `a NEAR/3 b`, '
            "`-without`.",
        ),
    ],
    project: Project | None = None,
    batch: Annotated[str | None, Query(max_length=64, description="Only in jobs of this batch.")] = None,
    name: Annotated[
        str | None, Query(max_length=200, description="Only in recordings with this in their name.")
    ] = None,
    tag: Annotated[
        str | None, Query(max_length=300, description="Only in jobs with this tag: `key` or `key=value`.")
    ] = None,
    speaker: Annotated[
        str | None, Query(max_length=200, description="Only what this speaker says: a label or a name.")
    ] = None,
    language: Annotated[
        str | None,
        Query(
            pattern="^[a-z]{2,3}$",
            description="Only in recordings mostly in this language, such as `de`; not in those of models "
            "that do not detect one.",
        ),
    ] = None,
    confidence: Annotated[
        float, Query(ge=0, le=1, description="The least confidence of each matching word.")
    ] = 0.0,
    alternatives: Annotated[
        bool,
        Query(
            description="Also search the n-best lists and word alternatives that jobs kept. The characters "
            "of such a match are those of the transcript in its place."
        ),
    ] = False,
    versions: Annotated[
        Versions,
        Query(description="`newest`: of a recording that was run again only in its newest transcript."),
    ] = "all",
    created_from: Annotated[
        Moment | None, Query(description="Job created at this time or later (ISO 8601).")
    ] = None,
    created_to: Annotated[
        Moment | None, Query(description="Job created before this time (ISO 8601).")
    ] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Find words in the transcripts, a page at a time, the newest recording first."""
    query = parse_query(q)
    if project is not None and not caller.sees(project):
        return json_response(SearchPage(items=[], next_cursor=None))
    matching = store.JobFilter(
        project=caller.project or project,
        batch=batch,
        name=name or None,
        tag=store.tag_of(tag) if tag else None,
        language=language,
        created_from=to_utc(created_from),
        created_to=to_utc(created_to),
    )
    wanted = Search(query, matching, speaker or None, confidence, alternatives, versions == "newest")
    with services.database.read() as tx:
        page = search_passages(tx, wanted, cursor, limit)
    return json_response(SearchPage(items=list(map(present_hit, page.items)), next_cursor=page.next_cursor))
