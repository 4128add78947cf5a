"""The calls of webhooks: created, listed, tested and removed, with their deliveries."""

from collections.abc import Sequence

from spool.client.base import answer
from spool.client.exchange import Ask, Flow, Pages, read
from spool.schemas.webhooks import DeliveryOut, DeliveryPage, WebhookList, WebhookOut, WebhookSecret

_ALL = "/v1/webhooks"


def add_webhook(
    url: str,
    *,
    events: Sequence[str] | None = None,
    project: str | None = None,
    batch: str | None = None,
    description: str = "",
) -> Flow[WebhookSecret]:
    """Have events sent to an address: every end unless `events` names others. Its secret is shown once."""
    values = {"events": list(events) if events else None, "project": project, "batch": batch}
    body = {"url": url, "description": description} | {
        name: value for name, value in values.items() if value is not None
    }
    return (yield from read(Ask("POST", _ALL, json=body), WebhookSecret))


def webhooks(*, project: str | None = None) -> Flow[list[WebhookOut]]:
    """Every webhook, newest first."""
    return (yield from read(Ask("GET", _ALL, {"project": project}), WebhookList)).items


def remove_webhook(webhook_id: str) -> Flow[None]:
    """Send nothing more there, and forget its deliveries."""
    yield from answer(Ask("DELETE", f"{_ALL}/{webhook_id}"))


def rotate_webhook(webhook_id: str) -> Flow[WebhookSecret]:
    """Make a new secret; the one so far signs beside it for a day."""
    return (yield from read(Ask("POST", f"{_ALL}/{webhook_id}/rotate"), WebhookSecret))


def enable_webhook(webhook_id: str) -> Flow[WebhookOut]:
    """Send there again after it was disabled."""
    return (yield from read(Ask("POST", f"{_ALL}/{webhook_id}/enable"), WebhookOut))


def test_webhook(webhook_id: str) -> Flow[DeliveryOut]:
    """Send a message of the type `webhook.test`."""
    return (yield from read(Ask("POST", f"{_ALL}/{webhook_id}/test"), DeliveryOut))


def delivery_page(
    webhook_id: str, *, state: str | None = None, cursor: str | None = None, limit: int = 50
) -> Flow[DeliveryPage]:
    """One page of what a webhook was sent, newest first."""
    query: dict[str, str | int | None] = {"state": state, "cursor": cursor, "limit": limit}
    return (yield from read(Ask("GET", f"{_ALL}/{webhook_id}/deliveries", query), DeliveryPage))


def deliveries(webhook_id: str, *, state: str | None = None) -> Pages[DeliveryOut]:
    """All that a webhook was sent and is kept, newest first."""
    return Pages(lambda cursor: delivery_page(webhook_id, state=state, cursor=cursor, limit=200))


def replay_delivery(webhook_id: str, delivery_id: str) -> Flow[DeliveryOut]:
    """Send a message again, under its own id."""
    return (yield from read(Ask("POST", f"{_ALL}/{webhook_id}/deliveries/{delivery_id}/replay"), DeliveryOut))
