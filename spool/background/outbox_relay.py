"""Sends committed hints from the outbox to Redis.

Sending twice is harmless and losing is not, so rows are taken, committed, sent, and only then deleted.
"""

from collections.abc import Sequence

from celery import Celery

from spool.broker.celery_app import queue_depth, send_hints
from spool.errors import StorageError
from spool.failpoints import failpoint
from spool.store.database import Database
from spool.store.queue import outbox
from spool.store.queue.outbox import Hint

HINT_WINDOW = 1000
AT_ONCE = 500


def relay_once(db: Database, app: Celery, limit: int = AT_ONCE, *, window: int = HINT_WINDOW) -> int:
    """Send up to `limit` due hints; returns how many were sent. No queue is filled beyond `window` messages.

    Raises StorageError when Redis or SQL does not answer; unsent hints stay due.
    """
    with db.read() as tx:
        queues = outbox.due_queues(tx)
    sent = 0
    for queue in queues:
        room = min(limit - sent, window - queue_depth(app, queue))
        if room <= 0:
            continue
        with db.begin() as tx:
            hints = outbox.due_hints(tx, room, queue)
        if hints:
            failpoint("relay.taken")
        sent += _send(db, app, queue, hints)
    return sent


def _send(db: Database, app: Celery, queue: str, hints: Sequence[Hint]) -> int:
    if not hints:
        return 0
    try:
        send_hints(app, [hint.job_id for hint in hints], queue)
        failpoint("relay.sent")
    except StorageError:
        with db.begin() as tx:
            outbox.give_back_hints(tx, hints)
        raise
    with db.begin() as tx:
        outbox.mark_sent(tx, hints)
    return len(hints)
