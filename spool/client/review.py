"""The calls of the review."""

from spool.client.exchange import Ask, Flow, Query, all_pages, read
from spool.client.jobs import LONGEST_PAGE
from spool.schemas.common import Page, Versions
from spool.schemas.review import Reason, ReviewPassageOut, ReviewRecordingOut, SampleOut, SizeOut


def review_page(
    *,
    project: str | None = None,
    batch: str | None = None,
    name: str | None = None,
    tag: str | None = None,
    model: str | None = None,
    reason: Reason | None = None,
    checked: bool = False,
    sample: str | None = None,
    job: str | None = None,
    versions: Versions | None = None,
    limit: int = LONGEST_PAGE,
    cursor: str | None = None,
) -> Flow[Page[ReviewPassageOut]]:
    """Up to `limit` (1 to 200) unchecked passages, the most doubtful first, after the `next_cursor` of
    another page. `checked`: the checked ones instead. `versions`: `all` includes transcripts whose recording
    was transcribed again."""
    query: Query = {
        "project": project,
        "batch": batch,
        "name": name,
        "tag": tag,
        "model": model,
        "reason": reason,
        "checked": checked or None,
        "sample": sample,
        "job": job,
        "versions": versions,
        "limit": limit,
        "cursor": cursor,
    }
    return (yield from read(Ask("GET", "/v1/review", query), Page[ReviewPassageOut]))


review = all_pages(review_page)


def review_recordings_page(
    *,
    project: str | None = None,
    batch: str | None = None,
    name: str | None = None,
    tag: str | None = None,
    model: str | None = None,
    reason: Reason | None = None,
    limit: int = LONGEST_PAGE,
    cursor: str | None = None,
) -> Flow[Page[ReviewRecordingOut]]:
    """Up to `limit` (1 to 200) recordings with unchecked passages, the most doubtful first, after the
    `next_cursor` of another page."""
    query: Query = {
        "project": project,
        "batch": batch,
        "name": name,
        "tag": tag,
        "model": model,
        "reason": reason,
        "limit": limit,
        "cursor": cursor,
    }
    return (yield from read(Ask("GET", "/v1/review/recordings", query), Page[ReviewRecordingOut]))


review_recordings = all_pages(review_recordings_page)


def check_passage(
    job_id: str, passage: int, *, author: str | None = None, checked: bool = True
) -> Flow[ReviewPassageOut]:
    """Mark a passage as checked, because its words are right, or with `checked=False` undo that."""
    path = f"/v1/jobs/{job_id}/passages/{passage}/check"
    ask = Ask("POST", path, json={"author": author, "checked": checked})
    return (yield from read(ask, ReviewPassageOut))


def sample_size(
    *,
    project: str | None = None,
    batch: str | None = None,
    model: str | None = None,
    margin: float = 0.02,
) -> Flow[SizeOut]:
    """How many passages are needed to know the word error rate within ± `margin` with 95 % confidence."""
    query: Query = {"project": project, "batch": batch, "model": model, "margin": margin}
    return (yield from read(Ask("GET", "/v1/review/size", query), SizeOut))


def draw_sample(
    *,
    project: str | None = None,
    batch: str | None = None,
    model: str | None = None,
    margin: float = 0.02,
    passages: int | None = None,
    seed: int | None = None,
    author: str | None = None,
) -> Flow[SampleOut]:
    """Draw passages at random, by default as many as `margin` requires. Raises Conflict if there are none."""
    body = {
        "project": project,
        "batch": batch,
        "model": model,
        "margin": margin,
        "passages": passages,
        "seed": seed,
        "author": author,
    }
    return (yield from read(Ask("POST", "/v1/review/samples", json=body), SampleOut))


def sample(sample_id: str) -> Flow[SampleOut]:
    """The error rate of a sample, with its 95 % interval."""
    return (yield from read(Ask("GET", f"/v1/review/samples/{sample_id}"), SampleOut))


def samples_page(
    *, project: str | None = None, limit: int = 100, cursor: str | None = None
) -> Flow[Page[SampleOut]]:
    """Up to `limit` (1 to 100) samples, newest first, after the `next_cursor` of another page."""
    query: Query = {"project": project, "limit": limit, "cursor": cursor}
    return (yield from read(Ask("GET", "/v1/review/samples", query), Page[SampleOut]))


samples = all_pages(samples_page)
