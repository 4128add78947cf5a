"""The calls that search the archive."""

from datetime import datetime

from spool.client.exchange import Ask, Flow, Query, all_pages, read
from spool.client.jobs import LONGEST_PAGE
from spool.schemas.common import Page, Versions
from spool.schemas.search import HitOut


def search_page(
    q: str,
    *,
    project: str | None = None,
    batch: str | None = None,
    name: str | None = None,
    tag: str | None = None,
    speaker: str | None = None,
    language: str | None = None,
    confidence: float | None = None,
    alternatives: bool = False,
    versions: Versions | None = None,
    created_from: datetime | None = None,
    created_to: datetime | None = None,
    limit: int = LONGEST_PAGE,
    cursor: str | None = None,
) -> Flow[Page[HitOut]]:
    """Up to `limit` (1 to 200) hits, the newest recording first, after the `next_cursor` of another page.

    `docs/search.md` describes `q`; the other arguments narrow it down, `versions="newest"` to the newest
    transcript of each recording. Raises Refused if `q` is invalid.
    """
    query: Query = {
        "q": q,
        "project": project,
        "batch": batch,
        "name": name,
        "tag": tag,
        "speaker": speaker,
        "language": language,
        "confidence": confidence,
        "alternatives": alternatives or None,
        "versions": versions,
        "created_from": created_from.isoformat() if created_from else None,
        "created_to": created_to.isoformat() if created_to else None,
        "limit": limit,
        "cursor": cursor,
    }
    return (yield from read(Ask("GET", "/v1/search", query), Page[HitOut]))


search = all_pages(search_page)
