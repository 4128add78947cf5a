"""The routes of events: those of a job or batch as a resumable stream (server-sent events).

A new stream begins with the current state, or the event that ended the job or batch; a resumed one with the
events after `Last-Event-ID`.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Connection

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_batch, get_visible_job
from api.delivery.sse import EventResponse, Progress, Stream, StreamStart, stream_text
from api.problems import Problem
from api.services import Services, ServicesDep
from spool.store.batch_progress import batch_counts, jobs_progress
from spool.store.event_log import any_unplaced, batch_is_open, last_ending, last_event, read_events

_MOST = 2**63 - 1

LastEventId = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=_MOST,
        description="Resume after this event. Browsers send it when they reconnect.",
    ),
]
After = Annotated[
    int | None,
    Query(
        ge=0,
        le=_MOST,
        description="The same, for clients that cannot send the header. 0: from the beginning.",
    ),
]


async def follow_job(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Follow a job.

    Follow a job: its events as they happen and its progress, until it has ended.
    """
    stream = Stream(caller, job_id, None, asyncio.get_running_loop())
    return await _answer(request, services, stream, after if last_event_id is None else last_event_id)


async def follow_batch(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    batch_id: str,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Follow a batch.

    Follow a batch: its events and those of its jobs as they happen, until all have ended.
    """
    stream = Stream(caller, None, batch_id, asyncio.get_running_loop())
    return await _answer(request, services, stream, after if last_event_id is None else last_event_id)


async def _answer(request: Request, services: Services, stream: Stream, after: int | None) -> Response:
    await run_in_threadpool(_check, services, stream.caller, stream)
    if not services.feed.attach(stream):
        wait = {"Retry-After": "10"}
        raise Problem(503, "too_many_streams", "Too many event streams are open; try again later.", wait)
    try:
        # Attached first: the broker sends what happens from now on, and earlier events are read here.
        begin = await run_in_threadpool(_find_start, services, stream, after)
    except BaseException:
        services.feed.detach(stream)
        raise
    if begin is None:
        services.feed.detach(stream)
        return Response(status_code=204)  # tells the browser not to reconnect
    request.state.ticket.release()  # streams have their own limit
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventResponse(_until_left(services, stream, begin), headers=headers)


async def _until_left(services: Services, stream: Stream, begin: StreamStart) -> AsyncIterator[str]:
    try:
        async for text in stream_text(services.database, stream, begin):
            yield text
    finally:
        services.feed.detach(stream)


def _check(services: Services, caller: Principal, stream: Stream) -> None:
    with services.database.read() as tx:
        if stream.job_id is not None:
            get_visible_job(tx, caller, stream.job_id)
        else:
            get_visible_batch(tx, caller, stream.batch_id or "")


def _find_start(services: Services, stream: Stream, after: int | None) -> StreamStart | None:
    """Where to begin; None if it is resumed after the last event."""
    which = {"job_id": stream.job_id} if stream.job_id else {"batch_id": stream.batch_id}
    with services.database.read() as tx:
        position = last_event(tx)
        state, ended = _state(tx, stream)
        placed = not any_unplaced(tx, **which)
        if after is None:
            ending = last_ending(tx, **which) if ended and placed else None
            return StreamStart(position, state, ended, placed, ending)
        if ended and placed and not read_events(tx, after, 1, **which):
            return None
    return StreamStart(after, None, ended, placed)


def _state(tx: Connection, stream: Stream) -> tuple[Progress, bool]:
    if stream.job_id is not None:
        job = jobs_progress(tx, [stream.job_id])[stream.job_id]
        return Progress("job.progress", job), job["state"] in ("done", "failed", "cancelled")
    batch_id = stream.batch_id or ""
    is_open = batch_is_open(tx, batch_id)
    counts = {state.value: number for state, number in batch_counts(tx, [batch_id])[batch_id].items()}
    return Progress("batch.progress", {"jobs": counts}), not is_open
