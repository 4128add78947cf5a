"""The calls about jobs: submit, look at, wait for, fetch the words, cancel, try again, delete.

Each is a generator of steps (`spool.client.exchange`); `Spool` and `AsyncSpool` have it as a method.
"""

import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from spool.client.base import answer
from spool.client.errors import Conflict, TimedOut
from spool.client.exchange import Ask, Flow, Pause, Query, Sent, Upload, all_pages, kind_of, read
from spool.client.sending.direct import DIRECT_BYTES, get_upload, send_direct
from spool.domain.jobs import JobState
from spool.domain.priority import PriorityName
from spool.domain.transcript import Transcript
from spool.errors import InvalidRequest
from spool.formats import Format, TextFormat
from spool.schemas.batches import BatchDetail
from spool.schemas.jobs import JobDeletion, JobDetail, JobPage, SpeakersOut, VoiceOut, VoicesOut

POLL_FIRST_S, POLL_LONGEST_S, POLL_GROWTH = 0.3, 5.0, 1.25
LONGEST_PAGE = 200
It = TypeVar("It", JobDetail, BatchDetail)


def submit(
    source: str | Path,
    *,
    name: str | None = None,
    project: str | None = None,
    options: Mapping[str, Any] | None = None,
    pool: str | None = None,
    worker: str | None = None,
    requires: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    reuse: bool | None = None,
    priority: PriorityName | None = None,
    deadline: datetime | str | None = None,
    output: Mapping[str, Any] | None = None,
    connection: str | None = None,
    idempotency_key: str | None = None,
    sent: Sent | None = None,
) -> Flow[JobDetail]:
    """Submit one recording and return its job, which has yet to run.

    `source`: an address (`https://…`, `s3://bucket/key`, `file:///…` as the server sees it), which workers
    fetch, an object of S3 with a `connection` of the project where one is named; or a file here, which is
    uploaded, with `sent(bytes, of)` called as it goes; a large one past the API where the server offers it,
    and the same call goes on after an interruption. What is not given has the server's default.
    `idempotency_key` is made up unless given, so that an answer lost on the way makes no second job; give
    your own to make a repeat of the whole call harmless too.

    Raises OSError for a file that cannot be read; Refused and Unreachable.
    """
    values = {"name": name, "project": project, "pool": pool, "worker": worker, "reuse": reuse}
    request: dict[str, Any] = {field: value for field, value in values.items() if value is not None}
    request |= {"requires": dict(requires)} if requires else {}
    request |= {"output": dict(output)} if output else {}
    request |= {"options": dict(options or {}), "tags": dict(tags or {})} | order_fields(priority, deadline)
    key = idempotency_key or new_key()
    if isinstance(source, str) and "://" in source:
        named = {"connection": connection} if connection else {}
        ask = Ask("POST", "/v1/jobs", json={"source": source, **request, **named}, key=key)
    elif connection is not None:
        raise InvalidRequest(f"connection: it reads s3:// sources only, and {source} is uploaded.")
    else:
        path = Path(source)
        if path.stat().st_size > DIRECT_BYTES:
            job = yield from _submit_past(path, request, key, sent)
            if job is not None:
                return job
        upload = Upload(request, path, path.name, kind_of(path), sent)
        ask = Ask("POST", "/v1/jobs", upload=upload, key=key)
    return (yield from read(ask, JobDetail))


def _submit_past(
    path: Path, request: Mapping[str, Any], key: str, sent: Sent | None
) -> Flow[JobDetail | None]:
    """The job of a file that is sent past the API; None where the server takes none so."""
    name = "".join(char for char in path.name if char.isprintable())[:200] or "upload"
    for last in (False, True):
        upload = yield from send_direct(path, name, request.get("project"), sent)
        if upload is None:
            return None
        try:
            ask = Ask("POST", "/v1/jobs", json={"source": upload.source, **request}, key=key)
            return (yield from read(ask, JobDetail))
        except Conflict:
            # The same file was submitted twice at once, and this upload is the other job's.
            if last or (yield from get_upload(upload.id)).state != "used":
                raise
    return None


def job(job_id: str) -> Flow[JobDetail]:
    """One job, with its cost so far."""
    return (yield from read(Ask("GET", f"/v1/jobs/{job_id}"), JobDetail))


def job_page(
    *,
    state: JobState | str | None = None,
    project: str | None = None,
    pool: str | None = None,
    worker: str | None = None,
    batch: str | None = None,
    name: str | None = None,
    tag: str | None = None,
    created_from: datetime | None = None,
    created_to: datetime | None = None,
    limit: int = LONGEST_PAGE,
    cursor: str | None = None,
) -> Flow[JobPage]:
    """Up to `limit` (1 to 200) jobs that fit, newest first, after the `next_cursor` of another page."""
    query: Query = {
        "state": state,
        "project": project,
        "pool": pool,
        "worker": worker,
        "batch": batch,
        "name": name,
        "tag": tag,
        "created_from": created_from.isoformat() if created_from else None,
        "created_to": created_to.isoformat() if created_to else None,
        "limit": limit,
        "cursor": cursor,
    }
    return (yield from read(Ask("GET", "/v1/jobs", query), JobPage))


jobs = all_pages(job_page)


def wait(
    job_id: str, *, progress: Callable[[JobDetail], object] | None = None, timeout: float | None = None
) -> Flow[JobDetail]:
    """Wait until the job has ended, in whichever way, and return it: look at its `state`.

    `progress` is called with the job each time it was looked at. Raises TimedOut after `timeout` seconds.
    """
    return (yield from poll_until(lambda: job(job_id), lambda it: it.state.terminal, progress, timeout))


def transcript(
    job_id: str,
    format: TextFormat = "txt",  # noqa: A002 - the name users know it by
    *,
    digits: str | None = None,
) -> Flow[str]:
    """The words as text, in one of `spool.formats.TEXT_FORMATS`; `digits` as in `transcript_file`. Raises
    Conflict until the job is done."""
    return (yield from transcript_file(job_id, format, digits=digits)).decode()


def transcript_file(
    job_id: str,
    format: Format,  # noqa: A002 - the name users know it by
    *,
    digits: str | None = None,
) -> Flow[bytes]:
    """A transcript's file in one of `spool.formats.FORMATS`; `digits`: the language whose numbers are written
    as digits, or `auto`. Raises Conflict while the job is not done."""
    query: Query = {"format": format, "digits": digits}
    response = yield Ask("GET", f"/v1/jobs/{job_id}/transcript", query, slow=True)
    assert response is not None
    return response.content


def words(job_id: str) -> Flow[Transcript]:
    """The whole record: words with times and confidence, segments, coverage. Raises Conflict before that."""
    return (yield from read(Ask("GET", f"/v1/jobs/{job_id}/transcript", slow=True), Transcript))


def cancel(job_id: str) -> Flow[JobDetail]:
    """Cancel a job: at once when it waits; a running one stops at its next chunk."""
    return (yield from read(Ask("DELETE", f"/v1/jobs/{job_id}"), JobDetail))


def retry(job_id: str, *, idempotency_key: str | None = None) -> Flow[JobDetail]:
    """Queue a failed or cancelled job again; chunks that were decoded are kept."""
    ask = Ask("POST", f"/v1/jobs/{job_id}/retry", key=idempotency_key or new_key())
    return (yield from read(ask, JobDetail))


def diarize(
    job_id: str,
    *,
    speakers: int | Mapping[str, int] | None = None,
    within_channels: bool = False,
    model: str = "default",
    voice_prints: bool = False,
    idempotency_key: str | None = None,
) -> Flow[JobDetail]:
    """Find out who speaks in a job that is done; no word is transcribed again. Wait for the job as usual.

    `speakers`: how many there are, or `{"min": 2, "max": 4}`. `model`: what tells them apart, such as
    `"sortformer"`. Raises Conflict while the job is not done.
    """
    asked = {"speakers": speakers if isinstance(speakers, int) or speakers is None else dict(speakers)}
    body = asked | {"within_channels": within_channels, "model": model, "voice_prints": voice_prints}
    ask = Ask("POST", f"/v1/jobs/{job_id}/diarize", json=body, key=idempotency_key or new_key())
    return (yield from read(ask, JobDetail))


def name_speakers(
    job_id: str, names: Mapping[str, str | None], *, remember: bool = False
) -> Flow[SpeakersOut]:
    """Name the speakers of a job's transcript by label; None removes a name. Others keep theirs. `remember`:
    recognise them in the project's other recordings, by their voice prints."""
    body = {"names": dict(names), "remember": remember}
    ask = Ask("PATCH", f"/v1/jobs/{job_id}/speakers", json=body, key=new_key())
    return (yield from read(ask, SpeakersOut))


def speakers(job_id: str) -> Flow[SpeakersOut]:
    """The speakers of a job's transcript, and the named voices that they are like."""
    return (yield from read(Ask("GET", f"/v1/jobs/{job_id}/speakers"), SpeakersOut))


def voices() -> Flow[list[VoiceOut]]:
    """The voices that people named."""
    return (yield from read(Ask("GET", "/v1/voices"), VoicesOut)).items


def forget_voice(voice_id: str) -> Flow[None]:
    """Delete a voice with every voice print that was confirmed as it; speakers keep the name."""
    yield from answer(Ask("DELETE", f"/v1/voices/{voice_id}"))


def delete_content(
    job_id: str, what: Literal["all", "source", "transcript"] = "all", *, copies: bool = False
) -> Flow[JobDeletion]:
    """Delete for good what a job that has ended holds: its uploaded recording, every word of it, or both.

    The job stays with its costs; `deleted` says what went when, and `copies` which jobs still hold the same
    transcript. With `copies` those lose it too. Raises Conflict while the job has not ended.
    """
    query = {"what": what, "copies": copies or None}
    return (yield from read(Ask("DELETE", f"/v1/jobs/{job_id}/content", query, key=new_key()), JobDeletion))


def new_key() -> str:
    """An idempotency key that nobody has."""
    return uuid.uuid4().hex


def poll_until(
    look: Callable[[], Flow[It]],
    ended: Callable[[It], bool],
    progress: Callable[[It], object] | None,
    timeout: float | None,
) -> Flow[It]:
    """Look until it has ended, less and less often. Raises TimedOut."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = POLL_FIRST_S
    while True:
        it = yield from look()
        if progress is not None:
            progress(it)
        if ended(it):
            return it
        left = pause if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise TimedOut(f"{it.id} is {it.state} after {timeout:g} s.")
        yield Pause(min(pause, left))
        pause = min(POLL_LONGEST_S, pause * POLL_GROWTH)


def order_fields(priority: PriorityName | None, deadline: datetime | str | None) -> dict[str, str]:
    """What the request says of who goes first."""
    at = deadline.isoformat() if isinstance(deadline, datetime) else deadline
    return {name: value for name, value in (("priority", priority), ("deadline", at)) if value is not None}
