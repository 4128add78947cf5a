"""The routes of webhooks: create, list, show, rotate, enable, test, remove; deliveries and their replay.

The dispatcher sends; nothing is sent from here.
"""

from typing import Annotated, Literal

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_webhook
from api.openapi.jobs import Cursor
from api.presenters.webhooks import present_delivery, present_secret, present_webhook
from api.problems import Problem
from api.services import ServicesDep
from api.submission.bodies import SMALL, read_json
from api.submission.webhooks import create_from_request
from spool.domain.webhooks import TEST_TYPE
from spool.schemas.common import Project
from spool.schemas.webhooks import (
    DeliveryOut,
    DeliveryPage,
    WebhookList,
    WebhookOut,
    WebhookRequest,
    WebhookSecret,
)
from spool.store import webhooks as store


async def create(
    request: Request, response: Response, services: ServicesDep, caller: CallerDep
) -> WebhookSecret:
    """Send events to a URL. Only this answer contains the secret that signs them."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "unsupported_media_type", "Send application/json.")
    body = await read_json(request, WebhookRequest, SMALL)
    webhook, secret = await run_in_threadpool(create_from_request, services, caller, body)
    response.headers["Location"] = f"/v1/webhooks/{webhook.id}"
    return present_secret(webhook, secret)


def list_webhooks(services: ServicesDep, caller: CallerDep, project: Project | None = None) -> WebhookList:
    """All webhooks, newest first."""
    if project is not None and not caller.sees(project):
        return WebhookList(items=[])
    with services.database.read() as tx:
        webhooks = store.list_webhooks(tx, caller.project or project)
    return WebhookList(items=[present_webhook(webhook) for webhook in webhooks])


def get_webhook(services: ServicesDep, caller: CallerDep, webhook_id: str) -> WebhookOut:
    """One webhook and the results of its deliveries."""
    with services.database.read() as tx:
        return present_webhook(get_visible_webhook(tx, caller, webhook_id))


def remove(services: ServicesDep, caller: CallerDep, webhook_id: str) -> Response:
    """Stop sending, and delete the webhook's URL, its secret and its deliveries."""
    with services.database.begin() as tx:
        store.remove_webhook(tx, get_visible_webhook(tx, caller, webhook_id).id)
    return Response(status_code=204)


def rotate(services: ServicesDep, caller: CallerDep, webhook_id: str) -> WebhookSecret:
    """Replace the signing secret. Messages are signed with both secrets for a day."""
    with services.database.begin() as tx:
        visible = get_visible_webhook(tx, caller, webhook_id)
        return present_secret(*store.rotate_secret(tx, visible.id, services.secret_box))


def enable(services: ServicesDep, caller: CallerDep, webhook_id: str) -> WebhookOut:
    """Enable a webhook that was disabled; pending deliveries are sent first."""
    with services.database.begin() as tx:
        webhook = store.enable_webhook(tx, get_visible_webhook(tx, caller, webhook_id).id)
    services.sender.wake()
    return present_webhook(webhook)


def test(services: ServicesDep, caller: CallerDep, webhook_id: str) -> DeliveryOut:
    """Send a message of the type `webhook.test`."""
    with services.database.begin() as tx:
        webhook = get_visible_webhook(tx, caller, webhook_id)
        payload = {"webhook": webhook.id, "project": webhook.project}
        delivery = store.add_delivery(tx, webhook, TEST_TYPE, payload)
    services.sender.wake()
    return present_delivery(delivery)


def list_deliveries(
    services: ServicesDep,
    caller: CallerDep,
    webhook_id: str,
    state: Literal["pending", "delivered", "failed"] | None = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DeliveryPage:
    """Deliveries and the result of each attempt, newest first."""
    with services.database.read() as tx:
        webhook = get_visible_webhook(tx, caller, webhook_id)
        page = store.list_deliveries(tx, webhook.id, state, cursor, limit)
    items = [present_delivery(delivery) for delivery in page.items]
    return DeliveryPage(items=items, next_cursor=page.next_cursor)


def replay(services: ServicesDep, caller: CallerDep, webhook_id: str, delivery_id: str) -> DeliveryOut:
    """Send a delivery again with its original id, whatever its result was."""
    with services.database.begin() as tx:
        delivery = store.replay_delivery(tx, get_visible_webhook(tx, caller, webhook_id), delivery_id)
    services.sender.wake()
    return present_delivery(delivery)
