"""The routes of webhooks: create, list, show, rotate, enable, test, remove; deliveries and their replay.

The dispatcher sends; nothing is sent from here.
"""

from typing import Annotated

from fastapi import Response

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_webhook
from api.queries import Cursor, Limit, ListedProject
from api.services import ServicesDep
from api.submission.bodies import json_body
from api.submission.webhooks import create_from_request
from spool.domain.webhooks import TEST_TYPE
from spool.schemas.common import ListOf, Page
from spool.schemas.webhooks import DeliveryOut, DeliveryState, WebhookOut, WebhookRequest, WebhookSecret
from spool.store import webhook_deliveries as deliveries
from spool.store import webhooks as store


def create(
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    body: Annotated[WebhookRequest, json_body(WebhookRequest, declared=True)],
) -> WebhookSecret:
    """Create a webhook.

    Sends events to a URL. Only this answer contains the secret that signs them.
    """
    webhook, secret = create_from_request(services, caller, body)
    response.headers["Location"] = f"/v1/webhooks/{webhook.id}"
    return WebhookSecret.of(webhook, secret=secret)


def list_webhooks(services: ServicesDep, project: ListedProject) -> ListOf[WebhookOut]:
    """List webhooks.

    All of them, newest first.
    """
    with services.database.read() as tx:
        return ListOf(items=list(map(WebhookOut.of, store.list_webhooks(tx, project))))


def get_webhook(services: ServicesDep, caller: CallerDep, webhook_id: str) -> WebhookOut:
    """Show a webhook.

    With the results of its deliveries.
    """
    with services.database.read() as tx:
        return WebhookOut.of(get_visible_webhook(tx, caller, webhook_id))


def remove(services: ServicesDep, caller: CallerDep, webhook_id: str) -> None:
    """Remove a webhook.

    Nothing more is sent, and its URL, its secret and its deliveries are deleted.
    """
    with services.database.begin() as tx:
        store.remove_webhook(tx, get_visible_webhook(tx, caller, webhook_id).id)


def rotate(services: ServicesDep, caller: CallerDep, webhook_id: str) -> WebhookSecret:
    """Rotate a webhook's secret.

    Messages are signed with both secrets for a day.
    """
    with services.database.begin() as tx:
        visible = get_visible_webhook(tx, caller, webhook_id)
        webhook, secret = store.rotate_secret(tx, visible.id, services.secret_box)
    return WebhookSecret.of(webhook, secret=secret)


def enable(services: ServicesDep, caller: CallerDep, webhook_id: str) -> WebhookOut:
    """Enable a webhook again.

    Pending deliveries of a webhook that was disabled are sent first.
    """
    with services.database.begin() as tx:
        webhook = store.enable_webhook(tx, get_visible_webhook(tx, caller, webhook_id).id)
    services.sender.wake()
    return WebhookOut.of(webhook)


def test(services: ServicesDep, caller: CallerDep, webhook_id: str) -> DeliveryOut:
    """Test a webhook.

    Sends a message of the type `webhook.test`.
    """
    with services.database.begin() as tx:
        webhook = get_visible_webhook(tx, caller, webhook_id)
        payload = {"webhook": webhook.id, "project": webhook.project}
        delivery = deliveries.add_delivery(tx, webhook, TEST_TYPE, payload)
    services.sender.wake()
    return DeliveryOut.of(delivery)


def list_deliveries(
    services: ServicesDep,
    caller: CallerDep,
    webhook_id: str,
    state: DeliveryState | None = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[DeliveryOut]:
    """List a webhook's deliveries.

    With the result of each attempt, newest first.
    """
    with services.database.read() as tx:
        webhook = get_visible_webhook(tx, caller, webhook_id)
        return Page[DeliveryOut].of(deliveries.list_deliveries(tx, webhook.id, state, cursor, limit))


def replay(services: ServicesDep, caller: CallerDep, webhook_id: str, delivery_id: str) -> DeliveryOut:
    """Send a delivery again.

    With its original id, whatever its result was.
    """
    with services.database.begin() as tx:
        delivery = deliveries.replay_delivery(tx, get_visible_webhook(tx, caller, webhook_id), delivery_id)
    services.sender.wake()
    return DeliveryOut.of(delivery)
