"""Webhooks and their secrets. A removed webhook keeps its row, without URL and secrets, for the counts of
`spool.store.webhook_deliveries`.
"""

from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, insert, null, select, update

from spool.domain.webhooks import new_secret
from spool.errors import Conflict
from spool.ids import new_id
from spool.settings.secret_key import SecretBox, SecretUnreadable
from spool.store.sql import count_rows, find_row, now_utc, seconds_from_now
from spool.tables import webhook_deliveries, webhooks
from spool.tables.record import reader_of, values_of
from spool.tables.webhooks import NewWebhook, Webhook

OLD_SECRET_SECONDS = 24 * 3600.0
"""How long the previous secret continues to sign besides the new one."""
MAX_WEBHOOKS = 50
"""The most webhooks of one project."""


def create_webhook(tx: Connection, new: NewWebhook, box: SecretBox) -> tuple[Webhook, str]:
    """Create a webhook; returns it and its secret, which only `box` can read from now on.

    Raises Conflict when the project has `MAX_WEBHOOKS`.
    """
    if count_rows(tx, webhooks.c.project == new.project, webhooks.c.deleted_at.is_(None)) >= MAX_WEBHOOKS:
        raise Conflict(
            f"Project {new.project} has {MAX_WEBHOOKS} webhooks, the most allowed; remove one first."
        )
    webhook_id, secret = new_id("whk"), new_secret()
    tx.execute(
        insert(webhooks).values(
            **values_of(new, NewWebhook),
            id=webhook_id,
            secret=box.encrypt(secret),
            created_at=now_utc(),
        )
    )
    return get_webhook(tx, webhook_id), secret


def get_webhook(tx: Connection, webhook_id: str) -> Webhook:
    """The webhook. Raises NotFound, also for a removed one."""
    query = _select_existing().where(webhooks.c.id == webhook_id)
    return _webhook_of(find_row(tx, query, f"There is no webhook {webhook_id}."))


def list_webhooks(tx: Connection, project: str | None = None) -> list[Webhook]:
    """Every webhook, or a project's, newest first."""
    query = _select_existing() if project is None else _select_existing().where(webhooks.c.project == project)
    return [
        _webhook_of(row) for row in tx.execute(query.order_by(webhooks.c.created_at.desc(), webhooks.c.id))
    ]


def rotate_secret(tx: Connection, webhook_id: str, box: SecretBox) -> tuple[Webhook, str]:
    """Give it a new secret, and return both; the old one also signs for one more day. Raises NotFound."""
    get_webhook(tx, webhook_id)
    secret = new_secret()
    tx.execute(
        update(webhooks)
        .where(webhooks.c.id == webhook_id)
        .values(
            secret=box.encrypt(secret),
            old_secret=webhooks.c.secret,
            old_secret_until=seconds_from_now(OLD_SECRET_SECONDS),
        )
    )
    return get_webhook(tx, webhook_id), secret


def reencrypt_secrets(tx: Connection, box: SecretBox) -> int:
    """Encrypt again with the box's first key what another of its keys encrypted; returns how many webhooks
    changed. Secrets that none of the keys decrypts are left as they are."""
    changed = 0
    for webhook in list_webhooks(tx):
        with suppress(SecretUnreadable):
            own = box.reencrypt(webhook.secret)
            old = webhook.old_secret and box.reencrypt(webhook.old_secret)
            if (own, old) != (webhook.secret, webhook.old_secret):
                # Unless it was rotated meanwhile.
                same = (webhooks.c.id == webhook.id, webhooks.c.secret == webhook.secret)
                changed += tx.execute(
                    update(webhooks).where(*same).values(secret=own, old_secret=old)
                ).rowcount
    return changed


def disable_webhook(tx: Connection, webhook_id: str, reason: str) -> None:
    """Stop sending to it until it is enabled again; pending deliveries stay pending."""
    tx.execute(
        update(webhooks)
        .where(webhooks.c.id == webhook_id, webhooks.c.disabled_at.is_(None))
        .values(disabled_at=now_utc(), disabled_reason=reason)
    )


def enable_webhook(tx: Connection, webhook_id: str) -> Webhook:
    """Send to it again, starting with the pending deliveries. Raises NotFound."""
    get_webhook(tx, webhook_id)
    cleared = dict.fromkeys(("disabled_at", "disabled_reason", "failing_since"), null())
    tx.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(**cleared))
    return get_webhook(tx, webhook_id)


def remove_webhook(tx: Connection, webhook_id: str) -> None:
    """Delete its address, secrets and deliveries. Raises NotFound."""
    get_webhook(tx, webhook_id)
    tx.execute(webhook_deliveries.delete().where(webhook_deliveries.c.webhook_id == webhook_id))
    tx.execute(
        update(webhooks)
        .where(webhooks.c.id == webhook_id)
        .values(url="", secret="", old_secret=null(), description="", deleted_at=now_utc())
    )


def _select_existing() -> Any:  # noqa: ANN401 - a select of these columns
    return select(*webhooks.c).where(webhooks.c.deleted_at.is_(None))


_webhook_of = reader_of(Webhook)
