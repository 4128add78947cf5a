"""The routes of watched folders and buckets: create, list, show what was found, pause, resume, check, remove.

The watcher lists; nothing is listed from here. A notification of an object store makes it look at once.
"""

from collections.abc import Sequence
from shlex import quote
from typing import Annotated, cast

import structlog
from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Connection

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_source
from api.openapi.jobs import Cursor, answer, describe, json_body, no_content, problems
from api.presenters.sources import present_item, present_source
from api.services import Services, ServicesDep
from api.submission.bodies import SUBMISSION, BodyLimits, read_json
from api.submission.notifications import read_notification
from api.submission.watching import change_from_request, create_from_request, mark_from_notification
from spool.background.thread import BackgroundLoop
from spool.schemas.common import Project
from spool.schemas.examples import sources as examples
from spool.schemas.sources import (
    ItemState,
    Marked,
    S3Notification,
    SourceChangeRequest,
    SourceItemPage,
    SourceList,
    SourceOut,
    SourceRequest,
)
from spool.store.archive import sources as store
from spool.store.archive.sources import WatchedSource

_NOTIFICATION = BodyLimits(size=512 * 2**10, values=20_000, keys=20_000, text=256 * 2**10)
"""SQS wraps a message of up to 256 KiB, or several smaller ones."""

log = structlog.get_logger(__name__)

_SHOWN = answer(200, "The source.", SourceOut, examples.SOURCE)

CREATE = describe(
    "Watch a folder or bucket",
    answer(201, "The source, to be listed next.", SourceOut, examples.SOURCE),
    problems(
        "malformed",
        "too_slow",
        "too_large",
        "conflict",
        "source_forbidden",
        "source_missing",
        "unknown_model",
        "invalid_request",
    ),
    status_code=201,
    openapi_extra=json_body(SourceRequest, examples.REQUEST),
)
CREATE["responses"][201]["headers"] = {
    "Location": {"description": "The source's path.", "schema": {"type": "string"}}
}
LIST = describe("List watched folders and buckets", answer(200, "Every source.", SourceList, examples.LIST))
ONE = describe("Show a source", _SHOWN, problems("not_found"))
CHANGE = describe(
    "Change a source",
    _SHOWN,
    problems("malformed", "too_slow", "too_large", "not_found", "unknown_model", "invalid_request"),
    openapi_extra=json_body(SourceChangeRequest, examples.CHANGE),
)
REMOVE = describe(
    "Stop watching",
    no_content("The source was removed."),
    problems("not_found"),
    status_code=204,
)
ITEMS = describe(
    "List what a source found",
    answer(200, "A page of versions of files, newest first.", SourceItemPage, examples.ITEMS),
    problems("not_found"),
)
PAUSE = describe("Pause a source", _SHOWN, problems("not_found"))
RESUME = describe("Resume a source", _SHOWN, problems("not_found"))
CHECK = describe("List a source now", _SHOWN, problems("not_found", "conflict"))
NOTIFY = describe(
    "Receive a notification of an object store",
    answer(202, "How many objects will be looked at.", Marked, examples.MARKED),
    problems("malformed", "too_slow", "too_large", "invalid_request"),
    status_code=202,
    openapi_extra=json_body(S3Notification, examples.NOTIFICATION),
)


async def create(request: Request, response: Response, services: ServicesDep, caller: CallerDep) -> SourceOut:
    """Watch a folder or prefix: submit every recording in it, and each one that is added or changes."""
    body = await read_json(request, SourceRequest, SUBMISSION)
    source = await run_in_threadpool(create_from_request, services, caller, body)
    _watcher(request).wake()
    response.headers["Location"] = f"/v1/sources/{source.id}"
    return present_source(source, {})


def list_sources(services: ServicesDep, caller: CallerDep, project: Project | None = None) -> SourceList:
    """All sources, newest first."""
    if project is not None and not caller.sees(project):
        return SourceList(items=[])
    with services.database.read() as tx:
        rows = store.list_sources(tx, caller.project or project)
        counts = store.item_counts(tx, [source.id for source in rows])
    return SourceList(items=[present_source(source, counts[source.id]) for source in rows])


def get_source(services: ServicesDep, caller: CallerDep, source_id: str) -> SourceOut:
    """One source: its state, and what it found."""
    with services.database.read() as tx:
        return _present(tx, get_visible_source(tx, caller, source_id))


async def change(request: Request, services: ServicesDep, caller: CallerDep, source_id: str) -> SourceOut:
    """Change a source's name, its times or the options of its future jobs; pause or resume it. Existing jobs
    are not changed."""
    body = await read_json(request, SourceChangeRequest, SUBMISSION)
    shown = await run_in_threadpool(_change, services, caller, source_id, body)
    _watcher(request).wake()
    return shown


def _change(services: Services, caller: Principal, source_id: str, body: SourceChangeRequest) -> SourceOut:
    with services.database.read() as tx:
        source = get_visible_source(tx, caller, source_id)
    wanted = change_from_request(services, caller, source, body)
    with services.database.begin() as tx:
        return _present(tx, store.change_source(tx, source.id, wanted))


def remove(services: ServicesDep, caller: CallerDep, source_id: str) -> Response:
    """Stop watching and forget what was found. Jobs are kept."""
    with services.database.begin() as tx:
        store.remove_source(tx, get_visible_source(tx, caller, source_id).id)
    return Response(status_code=204)


def list_items(
    services: ServicesDep,
    caller: CallerDep,
    source_id: str,
    state: ItemState | None = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> SourceItemPage:
    """What a source found: the job of each version of a file, or why it has none."""
    with services.database.read() as tx:
        source = get_visible_source(tx, caller, source_id)
        page = store.list_items(tx, source.id, state, cursor, limit)
    return SourceItemPage(items=[present_item(item) for item in page.items], next_cursor=page.next_cursor)


def pause(services: ServicesDep, caller: CallerDep, source_id: str) -> SourceOut:
    """Stop listing a source until it is resumed. Its jobs continue."""
    with services.database.begin() as tx:
        return _present(tx, store.pause_source(tx, get_visible_source(tx, caller, source_id).id))


def resume(request: Request, services: ServicesDep, caller: CallerDep, source_id: str) -> SourceOut:
    """List a source again, starting now."""
    return _check(request, services, caller, source_id, resume=True)


def check(request: Request, services: ServicesDep, caller: CallerDep, source_id: str) -> SourceOut:
    """List a source now, ahead of its schedule."""
    return _check(request, services, caller, source_id, resume=False)


async def notify(request: Request, services: ServicesDep, caller: CallerDep) -> Marked:
    """Look at the objects that an S3 event notification names. What notifications miss, listings find.
    Envelopes of SNS, SQS and EventBridge are opened. Spool fetches nothing that a notification names: to
    confirm a subscription of SNS, run the command in the server's log."""
    body = await read_json(request, S3Notification, _NOTIFICATION)
    notification = read_notification(body.root)
    for each in notification.subscriptions:
        command = f"aws sns confirm-subscription --topic-arn {quote(each.topic)} --token {quote(each.token)}"
        log.warning("a topic asks to be confirmed", topic=each.topic, key=caller.key_id, command=command)
    marked = await run_in_threadpool(_mark, services, caller, notification.created)
    _watcher(request).wake()
    return Marked(marked=marked, to_confirm=[each.topic for each in notification.subscriptions])


def _mark(services: Services, caller: Principal, created: Sequence[str]) -> int:
    with services.database.begin() as tx:
        return mark_from_notification(tx, caller, created)


def _check(
    request: Request, services: Services, caller: Principal, source_id: str, *, resume: bool
) -> SourceOut:
    with services.database.begin() as tx:
        source = get_visible_source(tx, caller, source_id)
        shown = _present(tx, store.check_source(tx, source.id, resume=resume))
    _watcher(request).wake()
    return shown


def _present(tx: Connection, source: WatchedSource) -> SourceOut:
    return present_source(source, store.item_counts(tx, [source.id])[source.id])


def _watcher(request: Request) -> BackgroundLoop:
    return cast("BackgroundLoop", request.app.state.watcher)
