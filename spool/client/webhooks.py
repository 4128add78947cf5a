"""The calls of webhooks: created, listed, tested and removed, with their deliveries."""

from collections.abc import Sequence

from spool.client.base import answer
from spool.client.exchange import Ask, Flow, Query, all_pages, read
from spool.client.jobs import LONGEST_PAGE
from spool.schemas.common import ListOf, Page
from spool.schemas.webhooks import DeliveryOut, WebhookOut, WebhookSecret

_ALL = "/v1/webhooks"


def add_webhook(
    url: str,
    *,
    events: Sequence[str] | None = None,
    project: str | None = None,
    batch: str | None = None,
    description: str = "",
) -> Flow[WebhookSecret]:
    """Send events to a URL, by default every end of a job or batch. Its secret is shown once."""
    values = {"events": list(events) if events else None, "project": project, "batch": batch}
    body = {"url": url, "description": description} | {
        name: value for name, value in values.items() if value is not None
    }
    return (yield from read(Ask("POST", _ALL, json=body), WebhookSecret))


def webhooks(*, project: str | None = None) -> Flow[list[WebhookOut]]:
    """All webhooks, newest first."""
    return (yield from read(Ask("GET", _ALL, {"project": project}), ListOf[WebhookOut])).items


def remove_webhook(webhook_id: str) -> Flow[None]:
    """Stop sending, and delete its deliveries."""
    yield from answer(Ask("DELETE", f"{_ALL}/{webhook_id}"))


def rotate_webhook(webhook_id: str) -> Flow[WebhookSecret]:
    """Replace the secret; the previous one also signs for a day."""
    return (yield from read(Ask("POST", f"{_ALL}/{webhook_id}/rotate"), WebhookSecret))


def enable_webhook(webhook_id: str) -> Flow[WebhookOut]:
    """Enable a webhook that was disabled."""
    return (yield from read(Ask("POST", f"{_ALL}/{webhook_id}/enable"), WebhookOut))


def test_webhook(webhook_id: str) -> Flow[DeliveryOut]:
    """Send a message of the type `webhook.test`."""
    return (yield from read(Ask("POST", f"{_ALL}/{webhook_id}/test"), DeliveryOut))


def delivery_page(
    webhook_id: str, *, state: str | None = None, limit: int = LONGEST_PAGE, cursor: str | None = None
) -> Flow[Page[DeliveryOut]]:
    """One page of a webhook's deliveries, newest first."""
    query: Query = {"state": state, "cursor": cursor, "limit": limit}
    return (yield from read(Ask("GET", f"{_ALL}/{webhook_id}/deliveries", query), Page[DeliveryOut]))


deliveries = all_pages(delivery_page)


def replay_delivery(webhook_id: str, delivery_id: str) -> Flow[DeliveryOut]:
    """Send a message again, with its original id."""
    return (yield from read(Ask("POST", f"{_ALL}/{webhook_id}/deliveries/{delivery_id}/replay"), DeliveryOut))
