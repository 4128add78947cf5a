"""Webhooks and their deliveries."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, Index

from spool.domain.columns import BigInt, Id, Length, Name
from spool.tables.base import UtcDateTime, partial_index
from spool.tables.record import table_of

REPLAYED = "replayed"
"""In a delivery's log: it was sent again at somebody's request."""
DeliveryState = Literal["pending", "delivered", "failed"]


@dataclass(frozen=True)
class NewWebhook:
    """A webhook to be created. `types`: the events it receives; `batch_id`: of one batch and its jobs."""

    project: Name
    url: str = field(repr=False)  # it may contain a token of the receiver's
    types: tuple[str, ...]
    batch_id: Id | None = None
    description: str = ""
    key_id: Id | None = None


@dataclass(frozen=True, kw_only=True)
class Webhook(NewWebhook):
    """A webhook as read from its row."""

    id: Id
    secret: str = field(repr=False)  # encrypted, as is the old one
    old_secret: str | None = field(repr=False)
    old_secret_until: datetime | None
    created_at: datetime
    failing_since: datetime | None
    """The first failure after the last success."""
    succeeded_at: datetime | None
    disabled_at: datetime | None
    disabled_reason: str | None
    delivered: BigInt = 0
    failed_tries: BigInt = 0
    given_up: BigInt = 0

    @property
    def state(self) -> Literal["enabled", "failing", "disabled"]:
        """Whether messages reach its receiver."""
        return "disabled" if self.disabled_at else "failing" if self.failing_since else "enabled"


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One message to one webhook, as read from its row."""

    id: Id
    webhook_id: Id
    type: Annotated[str, Length(32)]
    body: str
    state: DeliveryState
    tries: int = 0
    due_at: datetime
    log: list[dict[str, Any]]
    """Each attempt: `at`, `milliseconds`, `status` and `error`; or that it was `replayed`."""
    created_at: datetime
    ended_at: datetime | None

    @property
    def message(self) -> dict[str, Any]:
        """Its body, parsed."""
        message: dict[str, Any] = json.loads(self.body)
        return message

    @property
    def next_try_at(self) -> datetime | None:
        """When it is sent, if it still is to be."""
        return self.due_at if self.state == "pending" else None

    @property
    def failures(self) -> int:
        """Failed attempts since it was created or replayed."""
        since = 0
        for entry in self.log:
            since = 0 if entry.get(REPLAYED) else since + 1
        return since


# A removed webhook keeps its row, without address and secrets, for the counts.
webhooks = table_of(
    "webhooks",
    Webhook,
    Column("deleted_at", UtcDateTime),
    Index("ix_webhooks_project", "project"),
)

webhook_deliveries = table_of(
    "webhook_deliveries",
    Delivery,
    ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], ondelete="CASCADE"),
    CheckConstraint("state IN ('pending', 'delivered', 'failed')", name="state"),
    partial_index("ix_webhook_deliveries_pending", "webhook_id", "due_at", where="state = 'pending'"),
    Index("ix_webhook_deliveries_webhook_id_created_at_id", "webhook_id", "created_at", "id"),
    Index("ix_webhook_deliveries_created_at", "created_at"),
)
