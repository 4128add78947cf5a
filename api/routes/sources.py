"""The routes of watched folders and buckets: create, list, show what was found, pause, resume, check, remove.

The watcher lists; nothing is listed from here. A notification of an object store makes it look at once.
"""

from shlex import quote
from typing import Annotated, cast

import structlog
from fastapi import Request, Response
from sqlalchemy import Connection

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_source
from api.presenters.sources import present_source
from api.queries import Cursor, Limit, ListedProject
from api.services import Services, ServicesDep
from api.submission.bodies import SUBMISSION, BodyLimits, json_body
from api.submission.notifications import read_notification
from api.submission.watching import change_from_request, create_from_request, mark_from_notification
from spool.background.thread import BackgroundLoop
from spool.schemas.common import ListOf, Page
from spool.schemas.sources import (
    ItemState,
    Marked,
    S3Notification,
    SourceChangeRequest,
    SourceItemOut,
    SourceRequest,
    WatchedSourceOut,
)
from spool.store.archive import sources as store
from spool.tables.sources import WatchedSource

_NOTIFICATION = BodyLimits(size=512 * 2**10, values=20_000, keys=20_000, text=256 * 2**10)
"""SQS wraps a message of up to 256 KiB, or several smaller ones."""

log = structlog.get_logger(__name__)


def create(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    body: Annotated[SourceRequest, json_body(SourceRequest, SUBMISSION)],
) -> WatchedSourceOut:
    """Watch a folder or bucket.

    Submits every recording in it, and each one that is added or changes.
    """
    source = create_from_request(services, caller, body)
    _watcher(request).wake()
    response.headers["Location"] = f"/v1/sources/{source.id}"
    return present_source(source, {})


def list_sources(services: ServicesDep, project: ListedProject) -> ListOf[WatchedSourceOut]:
    """List watched folders and buckets.

    All of them, newest first.
    """
    with services.database.read() as tx:
        rows = store.list_sources(tx, project)
        counts = store.item_counts(tx, [source.id for source in rows])
    return ListOf(items=[present_source(source, counts[source.id]) for source in rows])


def get_source(services: ServicesDep, caller: CallerDep, source_id: str) -> WatchedSourceOut:
    """Show a source.

    Its state, and what it found.
    """
    with services.database.read() as tx:
        return _present(tx, get_visible_source(tx, caller, source_id))


def change(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    source_id: str,
    body: Annotated[SourceChangeRequest, json_body(SourceChangeRequest, SUBMISSION)],
) -> WatchedSourceOut:
    """Change a source.

    Its name, its times or the options of its future jobs; or pause or resume it. Existing jobs are not
    changed.
    """
    with services.database.read() as tx:
        source = get_visible_source(tx, caller, source_id)
    wanted = change_from_request(services, caller, source, body)
    with services.database.begin() as tx:
        shown = _present(tx, store.change_source(tx, source.id, wanted))
    _watcher(request).wake()
    return shown


def remove(services: ServicesDep, caller: CallerDep, source_id: str) -> None:
    """Stop watching.

    What was found is forgotten. Jobs are kept.
    """
    with services.database.begin() as tx:
        store.remove_source(tx, get_visible_source(tx, caller, source_id).id)


def list_items(
    services: ServicesDep,
    caller: CallerDep,
    source_id: str,
    state: ItemState | None = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[SourceItemOut]:
    """List what a source found.

    The job of each version of a file, or why it has none; newest first.
    """
    with services.database.read() as tx:
        source = get_visible_source(tx, caller, source_id)
        return Page[SourceItemOut].of(store.list_items(tx, source.id, state, cursor, limit))


def pause(services: ServicesDep, caller: CallerDep, source_id: str) -> WatchedSourceOut:
    """Pause a source.

    It is not listed until it is resumed. Its jobs continue.
    """
    with services.database.begin() as tx:
        return _present(tx, store.pause_source(tx, get_visible_source(tx, caller, source_id).id))


def resume(request: Request, services: ServicesDep, caller: CallerDep, source_id: str) -> WatchedSourceOut:
    """Resume a source.

    It is listed again, starting now.
    """
    return _check(request, services, caller, source_id, resume=True)


def check(request: Request, services: ServicesDep, caller: CallerDep, source_id: str) -> WatchedSourceOut:
    """List a source now.

    Ahead of its schedule.
    """
    return _check(request, services, caller, source_id, resume=False)


def notify(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    body: Annotated[S3Notification, json_body(S3Notification, _NOTIFICATION)],
) -> Marked:
    """Receive a notification of an object store.

    The objects that an S3 event notification names are looked at. What notifications miss, listings find.
    Envelopes of SNS, SQS and EventBridge are opened. Spool fetches nothing that a notification names: to
    confirm a subscription of SNS, run the command in the server's log.
    """
    notification = read_notification(body.root)
    for each in notification.subscriptions:
        command = f"aws sns confirm-subscription --topic-arn {quote(each.topic)} --token {quote(each.token)}"
        log.warning("a topic asks to be confirmed", topic=each.topic, key=caller.key_id, command=command)
    with services.database.begin() as tx:
        marked = mark_from_notification(tx, caller, notification.created)
    _watcher(request).wake()
    return Marked(marked=marked, to_confirm=[each.topic for each in notification.subscriptions])


def _check(
    request: Request, services: Services, caller: Principal, source_id: str, *, resume: bool
) -> WatchedSourceOut:
    with services.database.begin() as tx:
        source = get_visible_source(tx, caller, source_id)
        shown = _present(tx, store.check_source(tx, source.id, resume=resume))
    _watcher(request).wake()
    return shown


def _present(tx: Connection, source: WatchedSource) -> WatchedSourceOut:
    return present_source(source, store.item_counts(tx, [source.id])[source.id])


def _watcher(request: Request) -> BackgroundLoop:
    return cast("BackgroundLoop", request.app.state.watcher)
