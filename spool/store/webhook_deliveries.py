"""Deliveries of events to webhooks: one row per delivery, attempted until it succeeds or fails for good.

Any process may take due deliveries: one that is taken is not due again for a while, so of several processes
one sends it, and one that dies loses none. The outcome of an attempt is written only under the number of that
attempt. HTTP is in `api.delivery`, signatures and retry times in `spool.domain.webhooks`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, literal, null, select, update

from spool.domain.events import Event
from spool.errors import Conflict
from spool.ids import new_id
from spool.store.archive.closed import hide_words
from spool.store.sql import Page, count_rows, fetch_page, find_row, now_utc, read_clock, seconds_from_now
from spool.tables import webhook_deliveries, webhooks
from spool.tables.record import reader_of
from spool.tables.webhooks import REPLAYED, Delivery, Webhook

_LOG = 30  # attempts that a delivery's log keeps


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery for this process to attempt now, with its URL and its encrypted secrets."""

    delivery: Delivery
    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Due:
    """A webhook with deliveries that are due."""

    webhook_id: str
    failing: bool
    """Whether its last attempt failed."""


def add_deliveries(tx: Connection, placed: Sequence[Event]) -> int:
    """Create a delivery of each event to each webhook of its project subscribed to it; return how many."""
    projects = {event.project for event in placed}
    subscribed = select(webhooks.c.id, webhooks.c.project, webhooks.c.types, webhooks.c.batch_id).where(
        webhooks.c.project.in_(projects), webhooks.c.deleted_at.is_(None), webhooks.c.disabled_at.is_(None)
    )
    hooks = tx.execute(subscribed).all() if projects else []
    rows = [
        _new(hook.id, event.type, event.at, event.document())
        for event in placed
        for hook in hooks
        if hook.project == event.project
        and event.type in hook.types
        and hook.batch_id in (None, event.batch_id)
    ]
    if rows:
        tx.execute(insert(webhook_deliveries).values(due_at=now_utc(), created_at=now_utc()), rows)
    return len(rows)


def add_delivery(tx: Connection, webhook: Webhook, kind: str, data: Mapping[str, Any]) -> Delivery:
    """Create one delivery to one webhook, whatever it subscribed to. Raises Conflict for a disabled one."""
    _refuse_disabled(webhook)
    now = read_clock(tx)
    row = _new(webhook.id, kind, now, data)
    tx.execute(insert(webhook_deliveries).values(**row, due_at=now_utc(), created_at=now_utc()))
    return get_delivery(tx, webhook.id, row["id"])


def due_webhooks(tx: Connection) -> list[Due]:
    """The webhooks with due deliveries; one index lookup per webhook."""
    due = exists(select(literal(1)).where(*_due(webhooks.c.id)))
    open_ = (webhooks.c.disabled_at.is_(None), webhooks.c.deleted_at.is_(None))
    rows = tx.execute(select(webhooks.c.id, webhooks.c.failing_since).where(*open_, due))
    return [Due(row.id, row.failing_since is not None) for row in rows]


def take_deliveries(tx: Connection, webhook_id: str, limit: int, seconds: float) -> list[Taken]:
    """Take up to `limit` due deliveries of a webhook for this process, which has `seconds` for each."""
    hook = tx.execute(
        select(
            webhooks.c.url,
            webhooks.c.secret,
            webhooks.c.old_secret,
            (webhooks.c.old_secret_until > now_utc()).label("old_signs"),
        ).where(
            webhooks.c.id == webhook_id, webhooks.c.disabled_at.is_(None), webhooks.c.deleted_at.is_(None)
        )
    ).one_or_none()
    if hook is None:
        return []
    wanted = (
        select(webhook_deliveries.c.id)
        .where(*_due(webhook_id))
        .order_by(webhook_deliveries.c.due_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = tx.execute(
        update(webhook_deliveries)
        .where(webhook_deliveries.c.id.in_(list(tx.scalars(wanted))))
        .values(due_at=seconds_from_now(seconds), tries=webhook_deliveries.c.tries + 1)
        .returning(*webhook_deliveries.c)
    )
    keys = (hook.secret, hook.old_secret) if hook.old_secret and hook.old_signs else (hook.secret,)
    deliveries = _hidden(tx, [Delivery(**row._mapping) for row in rows])
    return [Taken(each, hook.url, keys) for each in deliveries]


def _hidden(tx: Connection, deliveries: list[Delivery]) -> list[Delivery]:
    """The deliveries without what they tell of the words of closed recordings."""
    messages = [each.message for each in deliveries]
    hide_words(tx, [each["data"] for each in messages])
    return [
        each if message == each.message else replace(each, body=_body(message))
        for each, message in zip(deliveries, messages, strict=True)
    ]


def note_try(
    tx: Connection, tried: Delivery, entry: Mapping[str, Any], wait: float | None, *, ok: bool
) -> bool:
    """Record an attempt: delivered, to be retried in `wait` seconds, or failed for good (None).

    Returns False and writes nothing if another process has attempted it since, or it was replayed.
    """
    row = webhook_deliveries.c
    state = "delivered" if ok else "pending" if wait is not None else "failed"
    written = tx.execute(
        update(webhook_deliveries)
        .where(row.id == tried.id, row.tries == tried.tries, row.state == "pending")
        .values(
            state=state,
            due_at=seconds_from_now(wait or 0.0),
            ended_at=null() if state == "pending" else now_utc(),
            log=[*tried.log, dict(entry)][-_LOG:],
        )
    )
    if written.rowcount != 1:
        return False
    hook = webhooks.c
    changes: dict[str, Any] = (
        {"delivered": hook.delivered + 1, "failing_since": null(), "succeeded_at": now_utc()}
        if ok
        else {
            "failed_tries": hook.failed_tries + 1,
            "given_up": hook.given_up + int(state == "failed"),
            "failing_since": func.coalesce(hook.failing_since, now_utc()),
        }
    )
    tx.execute(update(webhooks).where(hook.id == tried.webhook_id).values(**changes))
    return True


def get_delivery(tx: Connection, webhook_id: str, delivery_id: str) -> Delivery:
    """One delivery of a webhook. Raises NotFound."""
    row = webhook_deliveries.c
    query = select(*row).where(row.id == delivery_id, row.webhook_id == webhook_id)
    return _hidden(tx, [_delivery_of(find_row(tx, query, f"There is no delivery {delivery_id}."))])[0]


def list_deliveries(
    tx: Connection, webhook_id: str, state: str | None = None, cursor: str | None = None, limit: int = 50
) -> Page[Delivery]:
    """Up to `limit` (1 to 1000) deliveries of a webhook, newest first, after `cursor`. Raises
    InvalidRequest."""
    row = webhook_deliveries.c
    query = select(*row).where(row.webhook_id == webhook_id)
    if state is not None:
        query = query.where(row.state == state)
    scope = ("deliveries", webhook_id, state)
    page = fetch_page(tx, webhook_deliveries, query, _delivery_of, scope, cursor=cursor, limit=limit)
    return Page(tuple(_hidden(tx, list(page.items))), page.next_cursor)


def replay_delivery(tx: Connection, webhook: Webhook, delivery_id: str) -> Delivery:
    """Send it again under its own id, with all its retries. Raises NotFound; Conflict for a disabled
    webhook."""
    _refuse_disabled(webhook)
    past = get_delivery(tx, webhook.id, delivery_id)
    now = read_clock(tx)
    tx.execute(
        update(webhook_deliveries)
        .where(webhook_deliveries.c.id == delivery_id)
        .values(
            state="pending",
            due_at=now_utc(),
            ended_at=null(),
            # An attempt in progress no longer counts.
            tries=webhook_deliveries.c.tries + 1,
            log=[*past.log, {"at": now.isoformat(), REPLAYED: True}][-_LOG:],
        )
    )
    return get_delivery(tx, webhook.id, delivery_id)


def webhook_deliveries_by_outcome(tx: Connection) -> dict[str, int]:
    """Deliveries of all projects by outcome. Only `pending` and `disabled_endpoints` ever fall."""
    hook = webhooks.c
    sums = tx.execute(
        select(
            func.coalesce(func.sum(hook.delivered), 0),
            func.coalesce(func.sum(hook.failed_tries), 0),
            func.coalesce(func.sum(hook.given_up), 0),
            func.count(hook.disabled_at).filter(hook.deleted_at.is_(None)),
        )
    ).one()
    pending = count_rows(tx, webhook_deliveries.c.state == "pending")
    names = ("delivered", "failed_tries", "given_up", "disabled_endpoints", "pending")
    return dict(zip(names, map(int, (*sums, pending)), strict=True))


def prune_deliveries(tx: Connection, days: float, limit: int = 5000) -> int:
    """Delete up to `limit` deliveries older than `days`; return how many. Call it until it returns 0."""
    row = webhook_deliveries.c
    old = select(row.id).where(row.created_at < seconds_from_now(-days * 86_400)).limit(limit)
    return tx.execute(delete(webhook_deliveries).where(row.id.in_(old))).rowcount


def _due(webhook_id: Any) -> Iterable[Any]:  # noqa: ANN401 - an id or the column of one
    row = webhook_deliveries.c
    return row.webhook_id == webhook_id, row.state == "pending", row.due_at <= now_utc()


def _new(webhook_id: str, kind: str, at: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    body = _body({"type": kind, "timestamp": at.isoformat(), "data": data})
    return {
        "id": new_id("msg"),
        "webhook_id": webhook_id,
        "type": kind,
        "body": body,
        "state": "pending",
        "log": [],
    }


def _body(message: Mapping[str, Any]) -> str:
    return json.dumps(message, separators=(",", ":"))


def _refuse_disabled(webhook: Webhook) -> None:
    if webhook.disabled_at is not None:
        raise Conflict(f"Webhook {webhook.id} is disabled ({webhook.disabled_reason}); enable it first.")


_delivery_of = reader_of(Delivery)
