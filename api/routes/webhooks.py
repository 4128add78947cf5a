"""The routes of webhooks: make, list, look at, rotate, enable, test, remove; deliveries and their replay.

Checks an address as far as that goes without DNS; the sender judges each connection again. Knows requests and
the store; nothing is sent from here.
"""

import json
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_batch, get_visible_webhook
from api.problems import Problem
from api.services import Services, ServicesDep
from api.submission.jobs import parsed, small_body
from spool.domain.webhooks import TEST_TYPE
from spool.errors import Forbidden, InvalidRequest
from spool.net.address_policy import AddressRules, HostRefused
from spool.net.pinned_http import check_scheme
from spool.schemas.common import Project
from spool.schemas.webhooks import (
    DeliveryOut,
    DeliveryPage,
    TryOut,
    WebhookList,
    WebhookOut,
    WebhookRequest,
    WebhookSecret,
)
from spool.store import webhooks as sent
from spool.store import webhooks as store

Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of a page.")]


async def create(
    request: Request, response: Response, services: ServicesDep, caller: CallerDep
) -> WebhookSecret:
    """Have events sent to an address. The answer holds the secret that signs them, this once."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "unsupported_media_type", "Send application/json.")
    asked = parsed(WebhookRequest, await small_body(request))
    webhook = await run_in_threadpool(_create, services, caller, asked)
    response.headers["Location"] = f"/v1/webhooks/{webhook.id}"
    return _with_secret(webhook)


def listed(services: ServicesDep, caller: CallerDep, project: Project | None = None) -> WebhookList:
    """Every endpoint, newest first."""
    if project is not None and not caller.sees(project):
        return WebhookList(items=[])
    with services.database.read() as tx:
        return WebhookList(items=[_shown(one) for one in store.list_webhooks(tx, caller.project or project)])


def one(services: ServicesDep, caller: CallerDep, webhook_id: str) -> WebhookOut:
    """One endpoint, and how it fares."""
    with services.database.read() as tx:
        return _shown(get_visible_webhook(tx, caller, webhook_id))


def remove(services: ServicesDep, caller: CallerDep, webhook_id: str) -> Response:
    """Send nothing more to it, and forget its address, its secret and its deliveries."""
    with services.database.begin() as tx:
        store.remove_webhook(tx, get_visible_webhook(tx, caller, webhook_id).id)
    return Response(status_code=204)


def rotate(services: ServicesDep, caller: CallerDep, webhook_id: str) -> WebhookSecret:
    """Make a new secret; the one so far signs beside it for a day."""
    with services.database.begin() as tx:
        return _with_secret(store.rotate_secret(tx, get_visible_webhook(tx, caller, webhook_id).id))


def enable(services: ServicesDep, caller: CallerDep, webhook_id: str) -> WebhookOut:
    """Send to it again after it was disabled, first what still waits."""
    with services.database.begin() as tx:
        webhook = store.enable_webhook(tx, get_visible_webhook(tx, caller, webhook_id).id)
    services.sender.wake()
    return _shown(webhook)


def test(services: ServicesDep, caller: CallerDep, webhook_id: str) -> DeliveryOut:
    """Send it a message of the type `webhook.test`."""
    with services.database.begin() as tx:
        webhook = get_visible_webhook(tx, caller, webhook_id)
        told = {"webhook": webhook.id, "project": webhook.project}
        delivery = sent.add_delivery(tx, webhook, TEST_TYPE, told)
    services.sender.wake()
    return _shown_delivery(delivery)


def deliveries(
    services: ServicesDep,
    caller: CallerDep,
    webhook_id: str,
    state: Literal["pending", "delivered", "failed"] | None = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DeliveryPage:
    """What it was sent and what came of each try, newest first."""
    with services.database.read() as tx:
        page = sent.list_deliveries(tx, get_visible_webhook(tx, caller, webhook_id).id, state, cursor, limit)
    return DeliveryPage(items=[_shown_delivery(one) for one in page.items], next_cursor=page.next_cursor)


def replay(services: ServicesDep, caller: CallerDep, webhook_id: str, delivery_id: str) -> DeliveryOut:
    """Send a message again under its own id, whatever came of it."""
    with services.database.begin() as tx:
        delivery = sent.replay_delivery(tx, get_visible_webhook(tx, caller, webhook_id), delivery_id)
    services.sender.wake()
    return _shown_delivery(delivery)


def _create(services: Services, caller: Principal, asked: WebhookRequest) -> store.Webhook:
    url = _checked_url(asked.url, services.settings.webhook_addresses)
    project = caller.project_for(asked.project)
    with services.database.begin() as tx:
        if asked.batch is not None:
            batch = get_visible_batch(tx, caller, asked.batch)
            project = caller.project_for(asked.project or batch.project)
            if batch.project != project:
                raise InvalidRequest(f"batch: {batch.id} is of the project {batch.project}.")
        new = store.NewWebhook(project, url, asked.events, asked.batch, asked.description, caller.key_id)
        return store.create_webhook(tx, new)


def _checked_url(url: str, rules: AddressRules) -> str:
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequest(f"url: is not a web address: {error}.") from None
    if not host or "\\" in url or " " in url:
        raise InvalidRequest("url: is not a web address: it needs a host and no spaces or backslashes.")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest("url: must not carry a user name or password; the signature says who sends.")
    try:
        check_scheme(rules, parts.scheme, host)
    except HostRefused as error:
        raise Forbidden(f"url: {error}") from None
    return parts._replace(fragment="").geturl()


def _fields(webhook: store.Webhook) -> dict[str, object]:
    failing = webhook.failing_since is not None
    return {
        "id": webhook.id,
        "project": webhook.project,
        "url": webhook.url,
        "events": list(webhook.types),
        "batch": webhook.batch_id,
        "description": webhook.description,
        "state": "disabled" if webhook.disabled_at else "failing" if failing else "enabled",
        "reason": webhook.disabled_reason,
        "created_at": webhook.created_at,
        "succeeded_at": webhook.succeeded_at,
        "failing_since": webhook.failing_since,
        "delivered": webhook.delivered,
        "given_up": webhook.given_up,
    }


def _shown(webhook: store.Webhook) -> WebhookOut:
    return WebhookOut.model_validate(_fields(webhook))


def _with_secret(webhook: store.Webhook) -> WebhookSecret:
    secret = {"secret": webhook.secret, "old_secret_until": webhook.old_secret_until}
    return WebhookSecret.model_validate(_fields(webhook) | secret)


def _shown_delivery(delivery: sent.Delivery) -> DeliveryOut:
    return DeliveryOut(
        id=delivery.id,
        type=delivery.type,
        state=delivery.state,
        created_at=delivery.created_at,
        next_try_at=delivery.due_at if delivery.state == "pending" else None,
        ended_at=delivery.ended_at,
        tries=[TryOut.model_validate(entry) for entry in delivery.log],
        body=json.loads(delivery.body),
    )
