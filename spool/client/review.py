"""The calls of the review."""

from spool.client.exchange import Ask, Flow, Pages, read
from spool.client.jobs import LONGEST_PAGE
from spool.schemas.review import Reason, ReviewPage, ReviewPassageOut


def review_page(
    *,
    project: str | None = None,
    batch: str | None = None,
    name: str | None = None,
    tag: str | None = None,
    model: str | None = None,
    reason: Reason | None = None,
    checked: bool = False,
    limit: int = LONGEST_PAGE,
    cursor: str | None = None,
) -> Flow[ReviewPage]:
    """Up to `limit` (1 to 200) passages that nobody checked, the most doubtful first, after the `next_cursor`
    of another page. `checked`: those that somebody did instead."""
    query: dict[str, str | int | None] = {
        "project": project,
        "batch": batch,
        "name": name,
        "tag": tag,
        "model": model,
        "reason": reason,
        "checked": "true" if checked else None,
        "limit": limit,
        "cursor": cursor,
    }
    return (yield from read(Ask("GET", "/v1/review", query), ReviewPage))


def review(
    *,
    project: str | None = None,
    batch: str | None = None,
    name: str | None = None,
    tag: str | None = None,
    model: str | None = None,
    reason: Reason | None = None,
    checked: bool = False,
) -> Pages[ReviewPassageOut]:
    """Every such passage, fetched a page at a time while they are asked for."""
    return Pages(
        lambda cursor: review_page(
            project=project,
            batch=batch,
            name=name,
            tag=tag,
            model=model,
            reason=reason,
            checked=checked,
            cursor=cursor,
        )
    )


def check_passage(
    job_id: str, passage: int, *, author: str | None = None, checked: bool = True
) -> Flow[ReviewPassageOut]:
    """Say that a passage's words are right, or with `checked=False` take that back."""
    path = f"/v1/jobs/{job_id}/passages/{passage}/check"
    ask = Ask("POST", path, json={"author": author, "checked": checked})
    return (yield from read(ask, ReviewPassageOut))
