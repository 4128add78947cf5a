"""The route of the search over all words of all transcripts that the caller may read."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query, Response

from api.auth.authentication import CallerDep
from api.auth.sight import SightDep
from api.presenters.responses import json_response
from api.presenters.search import present_hit, present_sounds
from api.queries import Cursor, JobQueryDep, Limit
from api.services import ServicesDep
from spool.domain.archive.query import parse_query
from spool.domain.archive.tokens import tokens_of
from spool.errors import InvalidRequest
from spool.schemas.common import Versions
from spool.schemas.search import FoundOut
from spool.sounds.dictionary import installed_lexicon
from spool.sounds.queries import SoundQuery, query_of_phones, query_of_words
from spool.store.sql import Page
from spool.store.transcripts.search import Hit, TranscriptSearch
from spool.store.transcripts.search import search_transcripts as search_passages
from spool.store.transcripts.sound_search import search_sounds


@dataclass(frozen=True, slots=True)
class SoundParameters:
    """What is searched by sound."""

    sound: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=200,
            description="Also find what sounds like these words, however it is written, in jobs with a "
            "witness. By default their text is searched, too.",
        ),
    ] = None
    spelling: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=300,
            description="How `sound` is said, in ARPABET (`OW K AA N K W OW`) or IPA.",
        ),
    ] = None

    def find_query(self, cursor: str | None, confidence: float, speaker: str | None) -> SoundQuery | None:
        """The phones to search for; None without `sound` and `spelling`. Raises InvalidRequest."""
        if self.sound is None and self.spelling is None:
            return None
        for name, given in (("cursor", cursor), ("confidence", confidence), ("speaker", speaker)):
            if given:
                raise InvalidRequest(f"{name}: cannot be combined with a search by sound.")
        if self.spelling is not None:
            return query_of_phones(self.spelling)
        return query_of_words(self.sound or "", installed_lexicon())


SoundsDep = Annotated[SoundParameters, Depends()]


def search(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    only: JobQueryDep,
    sounds: SoundsDep,
    q: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=500,
            description='Words near one another; `"a phrase"`, `begin*`, `sounds~`, `a NEAR/3 b`, '
            "`-without`. Required without `sound` or `spelling`.",
        ),
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
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Annotated[Response, FoundOut]:
    """Search the transcripts.

    A page of hits at a time, the newest recording first. A page may hold fewer than the limit and still have
    a `next_cursor`. Passages with closed words are no hits. With `sound` or `spelling`, the best `limit` hits
    in one list: what is written so, and what sounds so.
    """
    matching = only.to_filter(caller, language=language)
    heard = sounds.find_query(cursor, confidence, speaker)
    if q is None and sounds.sound is not None and tokens_of(sounds.sound):
        q = '"' + sounds.sound.replace('"', " ") + '"'
    if q is None and heard is None:
        raise InvalidRequest("Nothing to search for: give q, sound or spelling.")
    newest = versions == "newest"
    wanted = None
    if q is not None:
        wanted = TranscriptSearch(
            parse_query(q), matching, speaker or None, confidence, alternatives, newest, sight.opened
        )
    with services.database.read() as tx:
        page: Page[Hit] = Page((), None)
        if wanted is not None:
            page = search_passages(tx, wanted, cursor, limit)
        found = None
        if heard is not None:
            found = search_sounds(tx, heard, matching, newest=newest, opened=sight.opened, limit=limit)
    closed = [hit.job for hit in page.items if hit.closed]
    closed += [hit.job for hit in found.hits if hit.closed] if found is not None else []
    sight.note(services.database, {job.id: job for job in closed}.values())
    if heard is not None and found is not None:
        return json_response(present_sounds(heard, found, page.items, limit))
    return json_response(FoundOut(items=list(map(present_hit, page.items)), next_cursor=page.next_cursor))
