"""What attempts heard when they listened a second time, channel by channel: speakers, and the witness.

A channel's row, its cost line and the worker's sum commit together (law 5), and only while the claim holds
(law 3).
"""

from sqlalchemy import Connection, null, select, update

from spool.store.ledger import charges
from spool.store.ledger.charges import Charge
from spool.store.queue.leases import Claim, lock_claim
from spool.store.sql import now_utc, upsert
from spool.tables import channel_passes
from spool.tables.jobs import ChannelPass, PassName
from spool.tables.record import reader_of, values_of


def save_pass(tx: Connection, claim: Claim, saved: ChannelPass, charge: Charge) -> None:
    """Save what was heard and bill its engine time; the row carries the claim's attempt. Raises LeaseLost
    with nothing written: the caller then bills the time as wasted."""
    lock_claim(tx, claim)
    own = {"job_id": claim.job.id, "attempt": claim.attempt, "created_at": now_utc()}
    row = values_of(saved, ChannelPass) | own
    kept = upsert(tx, channel_passes, row, returning=[channel_passes.c.attempt]).one_or_none()
    charges.write_charge(tx, claim.job.id, claim.attempt, charge, wasted=kept is None)


def load_passes(tx: Connection, job_id: str, listener: PassName) -> list[ChannelPass]:
    """All that was saved of one kind, by channel and attempt."""
    c = channel_passes.c
    own = select(channel_passes).where(c.job_id == job_id, c.listener == listener)
    return [reader_of(ChannelPass)(row) for row in tx.execute(own.order_by(c.channel, c.attempt))]


def drop_frames(tx: Connection, job_id: str, listener: PassName) -> None:
    """Delete the frames, which only an attempt that continues needs."""
    c = channel_passes.c
    tx.execute(update(channel_passes).where(c.job_id == job_id, c.listener == listener).values(frames=null()))
