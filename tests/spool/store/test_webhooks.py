"""Webhooks in SQL, on both databases: who is told what, each message taken once, and what comes of tries."""

import json
import threading
from typing import Any

import pytest
from sqlalchemy import select, update

from ops.testbed.rows import claimed, queued
from spool.domain import EVENT_TYPES
from spool.errors import Conflict, NotFound
from spool.settings import SecretBox, SecretUnreadable
from spool.store import Database, fail_job, place_events, seconds_from_now, webhooks
from spool.store import webhook_deliveries as deliveries
from spool.tables import webhook_deliveries
from spool.tables import webhooks as rows
from spool.tables.webhooks import Delivery, NewWebhook, Webhook

BOX = SecretBox(("a key that is long enough for this",))
ENTRY = {"at": "2026-11-21T20:00:00+00:00", "milliseconds": 5, "status": 500, "error": None}


def hook(db: Database, project: str = "alpha", *types: str, batch: str | None = None) -> Webhook:
    with db.begin() as tx:
        new = NewWebhook(project, "https://example.org/", types or EVENT_TYPES, batch)
        return webhooks.create_webhook(tx, new, BOX)[0]


def failed_job(db: Database, project: str = "alpha", **fields: Any) -> str:
    claim = claimed(db, queued(db, project=project, **fields).id)
    with db.begin() as tx:
        fail_job(tx, claim, "audio_unreadable", "no")
    return claim.job.id


def told(db: Database, webhook_id: str) -> list[tuple[str, str | None]]:
    with db.begin() as tx:
        while place_events(tx):
            pass
    with db.read() as tx:
        found = deliveries.list_deliveries(tx, webhook_id, limit=200).items
    return sorted((one.type, json.loads(one.body)["data"].get("job")) for one in found)


def take(db: Database, webhook_id: str, limit: int = 10, seconds: float = 60) -> list[deliveries.Taken]:
    with db.begin() as tx:
        return deliveries.take_deliveries(tx, webhook_id, limit, seconds)


def note(db: Database, one: Delivery, wait: float | None = None, *, ok: bool = False) -> bool:
    with db.begin() as tx:
        return deliveries.note_try(tx, one, ENTRY, wait, ok=ok)


def outcomes(db: Database) -> dict[str, int]:
    with db.read() as tx:
        return deliveries.webhook_deliveries_by_outcome(tx)


def test_an_endpoint_is_told_what_it_asked_for_of_its_project(db: Database) -> None:
    everything, failures = hook(db), hook(db, "alpha", "job.failed")
    other, of_batch = hook(db, "beta"), hook(db, "alpha", batch="bat_1")
    disabled = hook(db)
    with db.begin() as tx:
        webhooks.disable_webhook(tx, disabled.id, "gone")
    job = failed_job(db)
    in_batch = failed_job(db, batch_id="bat_1", batch_line=1, custom_id="reel-1")
    every = [(kind, one) for kind in ("job.failed", "job.queued", "job.started") for one in (job, in_batch)]
    assert told(db, everything.id) == sorted(every)
    assert told(db, failures.id) == sorted([("job.failed", job), ("job.failed", in_batch)])
    assert {one for _, one in told(db, of_batch.id)} == {in_batch}
    assert told(db, other.id) == told(db, disabled.id) == []


def test_of_several_processes_one_takes_a_message_and_a_dead_ones_comes_again(db: Database) -> None:
    mine = hook(db, "alpha", "job.failed")
    for _ in range(12):
        failed_job(db)
    told(db, mine.id)
    taken: list[deliveries.Taken] = []

    def work() -> None:
        while found := take(db, mine.id, 2):
            taken.extend(found)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len({one.delivery.id for one in taken}) == 12
    with db.read() as tx:
        assert deliveries.due_webhooks(tx) == []

    # A process that died with its messages gives them up after a while, and what it still says is not heard
    dead = taken[0].delivery
    with db.begin() as tx:
        late = update(webhook_deliveries).where(webhook_deliveries.c.id == dead.id)
        tx.execute(late.values(due_at=seconds_from_now(-1)))
    with db.read() as tx:
        assert [one.webhook_id for one in deliveries.due_webhooks(tx)] == [mine.id]
    (again,) = take(db, mine.id)
    assert (again.delivery.id, again.delivery.tries) == (dead.id, 2)
    assert not note(db, dead, ok=True)
    assert note(db, again.delivery, ok=True)


def test_tries_are_counted_until_a_message_arrives_or_is_given_up(db: Database) -> None:
    mine = hook(db, "alpha", "job.failed")
    failed_job(db)
    told(db, mine.id)
    (first,) = take(db, mine.id)
    assert note(db, first.delivery, 0.0)
    with db.read() as tx:
        assert [one.failing for one in deliveries.due_webhooks(tx)] == [True]
    (second,) = take(db, mine.id)
    assert second.delivery.failures == 1
    assert note(db, second.delivery, None)
    with db.read() as tx:
        ended = deliveries.get_delivery(tx, mine.id, first.delivery.id)
        failing = webhooks.get_webhook(tx, mine.id)
    assert (ended.state, ended.failures, failing.given_up) == ("failed", 2, 1)
    assert failing.failing_since is not None
    assert take(db, mine.id) == []

    # Replayed, it begins anew under the same id
    with db.begin() as tx:
        again = deliveries.replay_delivery(tx, failing, ended.id)
    assert (again.state, again.failures, again.body) == ("pending", 0, first.delivery.body)
    (third,) = take(db, mine.id)
    assert third.delivery.id == first.delivery.id
    assert note(db, third.delivery, ok=True)
    with db.read() as tx:
        well = webhooks.get_webhook(tx, mine.id)
    assert (well.failing_since, well.delivered, well.failed_tries) == (None, 1, 2)
    expected = {"delivered": 1, "failed_tries": 2, "given_up": 1, "disabled_endpoints": 0, "pending": 0}
    assert outcomes(db) == expected
    with db.begin() as tx:
        webhooks.remove_webhook(tx, mine.id)
    assert outcomes(db) == expected, "what was counted stays"


def test_a_rotated_secret_signs_beside_the_new_one_for_a_day(db: Database) -> None:
    mine = hook(db, "alpha", "job.failed")
    with db.begin() as tx:
        rotated, secret = webhooks.rotate_secret(tx, mine.id, BOX)
    assert (rotated.old_secret, rotated.secret != mine.secret) == (mine.secret, True)
    assert BOX.decrypt(rotated.secret) == secret
    failed_job(db)
    told(db, mine.id)
    (one,) = take(db, mine.id, seconds=0)
    assert one.secrets == (rotated.secret, mine.secret)
    with db.begin() as tx:
        tx.execute(update(rows).values(old_secret_until=seconds_from_now(-1)))
    (one,) = take(db, mine.id)
    assert one.secrets == (rotated.secret,)
    assert mine.secret not in repr((mine, rotated, one))
    assert rotated.secret not in repr((mine, rotated, one))


def test_secrets_are_encrypted_and_move_to_a_new_key(db: Database) -> None:
    new = NewWebhook("alpha", "https://example.org/", EVENT_TYPES)
    with db.begin() as tx:
        mine, secret = webhooks.create_webhook(tx, new, BOX)
        other, others_secret = webhooks.create_webhook(
            tx, new, SecretBox(("a key of somebody else's process",))
        )
    both = SecretBox(("the key that comes after the first", "a key that is long enough for this"))
    with db.begin() as tx:
        stored = set(tx.scalars(select(rows.c.secret)))
        assert not stored & {secret, others_secret}
        assert not any("whsec" in one for one in stored)
        assert webhooks.reencrypt_secrets(tx, both) == 1
        assert webhooks.reencrypt_secrets(tx, both) == 0, "each once"
        moved, kept = webhooks.get_webhook(tx, mine.id), webhooks.get_webhook(tx, other.id)
    assert SecretBox(("the key that comes after the first",)).decrypt(moved.secret) == secret
    assert kept.secret == other.secret, "what nobody can read stays"
    for unreadable in (moved.secret, "whsec_plain"):
        with pytest.raises(SecretUnreadable, match="SPOOL_SECRET_KEY"):
            BOX.decrypt(unreadable)


def test_a_disabled_endpoint_keeps_what_waits_until_it_is_enabled(db: Database) -> None:
    mine = hook(db, "alpha", "job.failed")
    failed_job(db)
    told(db, mine.id)
    with db.begin() as tx:
        webhooks.disable_webhook(tx, mine.id, "The receiver answered 410.")
    assert take(db, mine.id) == []
    with db.begin() as tx:
        gone = webhooks.get_webhook(tx, mine.id)
        with pytest.raises(Conflict, match="answered 410"):
            deliveries.add_delivery(tx, gone, "webhook.test", {})
    assert outcomes(db)["disabled_endpoints"] == 1
    with db.begin() as tx:
        assert webhooks.enable_webhook(tx, mine.id).disabled_reason is None
    assert len(take(db, mine.id)) == 1


def test_a_removed_endpoint_leaves_no_address_and_no_secret(db: Database) -> None:
    mine = hook(db, "alpha", "job.failed")
    failed_job(db)
    told(db, mine.id)
    with db.begin() as tx:
        webhooks.rotate_secret(tx, mine.id, BOX)
        webhooks.remove_webhook(tx, mine.id)
        with pytest.raises(NotFound):
            webhooks.get_webhook(tx, mine.id)
        assert webhooks.list_webhooks(tx) == []
        left = tx.execute(select(rows.c.url, rows.c.secret, rows.c.old_secret)).one()
        assert tx.execute(select(webhook_deliveries)).all() == []
    assert tuple(left) == ("", "", None)


def test_pages_of_deliveries_and_old_ones_forgotten(db: Database) -> None:
    mine = hook(db, "alpha", "job.failed")
    for _ in range(5):
        failed_job(db)
    told(db, mine.id)
    seen, cursor = [], None
    while True:
        with db.read() as tx:
            page = deliveries.list_deliveries(tx, mine.id, "pending", cursor, 2)
        seen += [one.id for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 5
    with db.begin() as tx:
        tx.execute(update(webhook_deliveries).values(created_at=seconds_from_now(-3 * 86_400)))
        assert deliveries.prune_deliveries(tx, 4) == 0
        assert deliveries.prune_deliveries(tx, 2) == 5


def test_a_project_has_so_many_endpoints(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MAX_WEBHOOKS", 1)
    hook(db)
    hook(db, "beta")
    with pytest.raises(Conflict, match="remove one first"):
        hook(db)
