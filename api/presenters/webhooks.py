"""Webhooks and their deliveries as the API shows them. Pure: one function for each record, no queries."""

import json

from spool.schemas.webhooks import DeliveryOut, TryOut, WebhookOut, WebhookSecret
from spool.store.webhooks import Delivery, Webhook


def present_webhook(webhook: Webhook) -> WebhookOut:
    """A webhook without its secret."""
    return WebhookOut.model_validate(_fields(webhook))


def present_secret(webhook: Webhook, secret: str) -> WebhookSecret:
    """A webhook with its signing secret: for the answers that create or rotate it."""
    fields = {"secret": secret, "old_secret_until": webhook.old_secret_until}
    return WebhookSecret.model_validate(_fields(webhook) | fields)


def present_delivery(delivery: Delivery) -> DeliveryOut:
    """A delivery with its attempts."""
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


def _fields(webhook: Webhook) -> dict[str, object]:
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
