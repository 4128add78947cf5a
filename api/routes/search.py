"""The route of the search over all words of all transcripts that the caller may read."""

from typing import Annotated

from fastapi import Query, Response

from api.auth.authentication import CallerDep
from api.auth.sight import SightDep
from api.presenters.responses import json_response
from api.presenters.search import present_hit
from api.queries import Cursor, JobQueryDep, Limit
from api.services import ServicesDep
from spool.domain.archive.query import parse_query
from spool.schemas.common import Page, Versions
from spool.schemas.search import HitOut
from spool.store.transcripts.search import TranscriptSearch
from spool.store.transcripts.search import search_transcripts as search_passages


def search(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    only: JobQueryDep,
    q: Annotated[
        str,
        Query(
            min_length=1,
            max_length=500,
            description='Words near one another; `"a phrase"`, `begin*`, `sounds~`, `a NEAR/3 b`, '
            "`-without`.",
        ),
    ],
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
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Annotated[Response, Page[HitOut]]:
    """Search the transcripts.

    A page of hits at a time, the newest recording first. A page may hold fewer than the limit and still have
    a `next_cursor`. Passages with closed words are no hits.
    """
    matching = only.to_filter(caller, language=language)
    wanted = TranscriptSearch(
        parse_query(q),
        matching,
        speaker or None,
        confidence,
        alternatives,
        versions == "newest",
        sight.opened,
    )
    with services.database.read() as tx:
        page = search_passages(tx, wanted, cursor, limit)
    sight.note(services.database, {hit.job.id: hit.job for hit in page.items if hit.closed}.values())
    hits = list(map(present_hit, page.items))
    return json_response(Page[HitOut](items=hits, next_cursor=page.next_cursor))
