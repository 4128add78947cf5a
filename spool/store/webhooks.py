"""Endpoints that are told of events: made, listed, their secrets rotated, disabled, removed.

A removed endpoint keeps its row, without address and secrets, for the counts of what became of deliveries.
What is sent to them is in `spool.store.deliveries`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, null, select, update

from spool.clock import now_utc, seconds_from_now
from spool.errors import Conflict, NotFound
from spool.ids import new_id
from spool.tables import webhook_deliveries, webhooks
from spool.webhooks import new_secret

OLD_SECRET_SECONDS = 24 * 3600.0
"""How long the secret before the last one goes on to sign."""
MOST = 50
"""Endpoints of one project."""


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """What is asked for. `types`: of which events; `batch_id`: of one batch and its jobs alone."""

    project: str
    url: str
    types: Sequence[str]
    batch_id: str | None = None
    description: str = ""
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class Webhook:
    """An endpoint as its row stood when it was read."""

    id: str
    project: str
    url: str = field(repr=False)  # it may hold a token of the receiver's
    types: tuple[str, ...]
    batch_id: str | None
    description: str
    secret: str = field(repr=False)
    old_secret: str | None = field(repr=False)
    old_secret_until: datetime | None
    key_id: str | None
    created_at: datetime
    failing_since: datetime | None
    """The first failure after the last success."""
    succeeded_at: datetime | None
    disabled_at: datetime | None
    disabled_reason: str | None
    delivered: int
    failed_tries: int
    given_up: int


def create_webhook(tx: Connection, new: NewWebhook) -> Webhook:
    """Make an endpoint with a secret of its own. Raises Conflict when the project has `MOST`."""
    mine = (webhooks.c.project == new.project, webhooks.c.deleted_at.is_(None))
    if (tx.scalar(select(func.count()).select_from(webhooks).where(*mine)) or 0) >= MOST:
        raise Conflict(f"The project {new.project} has {MOST} webhooks; remove one first.")
    webhook_id = new_id("whk")
    tx.execute(
        insert(webhooks).values(
            id=webhook_id,
            project=new.project,
            url=new.url,
            types=list(new.types),
            batch_id=new.batch_id,
            description=new.description,
            secret=new_secret(),
            key_id=new.key_id,
            created_at=now_utc(),
        )
    )
    return get_webhook(tx, webhook_id)


def get_webhook(tx: Connection, webhook_id: str) -> Webhook:
    """The endpoint. Raises NotFound, also for one that was removed."""
    row = tx.execute(_known().where(webhooks.c.id == webhook_id)).one_or_none()
    if row is None:
        raise NotFound(f"There is no webhook {webhook_id}.")
    return _webhook_of(row)


def list_webhooks(tx: Connection, project: str | None = None) -> list[Webhook]:
    """Every endpoint, or a project's, the newest first."""
    query = _known() if project is None else _known().where(webhooks.c.project == project)
    return [
        _webhook_of(row) for row in tx.execute(query.order_by(webhooks.c.created_at.desc(), webhooks.c.id))
    ]


def rotate_secret(tx: Connection, webhook_id: str) -> Webhook:
    """Give it a new secret; the one so far signs beside it for a day. Raises NotFound."""
    get_webhook(tx, webhook_id)
    tx.execute(
        update(webhooks)
        .where(webhooks.c.id == webhook_id)
        .values(
            secret=new_secret(),
            old_secret=webhooks.c.secret,
            old_secret_until=seconds_from_now(OLD_SECRET_SECONDS),
        )
    )
    return get_webhook(tx, webhook_id)


def disable_webhook(tx: Connection, webhook_id: str, reason: str) -> None:
    """Tell it nothing more until somebody enables it; what waits goes on waiting."""
    tx.execute(
        update(webhooks)
        .where(webhooks.c.id == webhook_id, webhooks.c.disabled_at.is_(None))
        .values(disabled_at=now_utc(), disabled_reason=reason)
    )


def enable_webhook(tx: Connection, webhook_id: str) -> Webhook:
    """Tell it again, from what waits on. Raises NotFound."""
    get_webhook(tx, webhook_id)
    nothing = dict.fromkeys(("disabled_at", "disabled_reason", "failing_since"), null())
    tx.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(**nothing))
    return get_webhook(tx, webhook_id)


def remove_webhook(tx: Connection, webhook_id: str) -> None:
    """Forget its address, secrets and deliveries. Raises NotFound."""
    get_webhook(tx, webhook_id)
    tx.execute(webhook_deliveries.delete().where(webhook_deliveries.c.webhook_id == webhook_id))
    tx.execute(
        update(webhooks)
        .where(webhooks.c.id == webhook_id)
        .values(url="", secret="", old_secret=null(), description="", deleted_at=now_utc())
    )


def _known() -> Any:  # noqa: ANN401 - a select of these columns
    columns = [column for column in webhooks.c if column.name != "deleted_at"]
    return select(*columns).where(webhooks.c.deleted_at.is_(None))


def _webhook_of(row: Row[Any]) -> Webhook:
    return Webhook(**{**row._mapping, "types": tuple(row.types)})
