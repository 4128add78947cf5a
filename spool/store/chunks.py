"""Chunks that were decoded: saved once per job, channel and number, and never decoded again (law 4).

The save, its cost line and the worker's sum commit together (law 5), and only while the claim holds (law 3).
A chunk that other weights or options decoded is not part of the transcript (law 7): it is deleted, and its
time is billed as wasted.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, select, update

from spool.domain.recognition import DecodedChunk
from spool.domain.spacing import join_words
from spool.store.ledger import charges
from spool.store.ledger.charges import Charge
from spool.store.queue.leases import Claim, lock_claim
from spool.store.sql import ManyRows, now_utc
from spool.tables import channel_passes, chunks
from spool.tables.record import reader_of, values_of


def save_chunk(
    tx: Connection, claim: Claim, chunk: DecodedChunk, charge: Charge, *, renewed: bool = False
) -> None:
    """Keep the chunk and bill its engine time. `renewed`: the transaction has renewed the claim's lease,
    which locked its row.

    A chunk that is saved already stays as it is, and the second decoding is billed as wasted. The row carries
    the claim's attempt. Raises LeaseLost with nothing written: the caller then bills the time as wasted by
    itself.
    """
    if not renewed:
        lock_claim(tx, claim)
    save_chunks(tx, claim, [(chunk, charge)])


def save_chunks(tx: Connection, claim: Claim, decoded: Sequence[tuple[DecodedChunk, Charge]]) -> None:
    """Like `save_chunk`, for several chunks of one attempt; the transaction has renewed its lease."""
    rows = [_row(claim, chunk) for chunk, _ in decoded]
    saved = {(row.channel, row.number) for row in _SAVED.execute(tx, rows)}
    was_there = [(chunk.span.channel, chunk.span.index) not in saved for chunk, _ in decoded]
    for wasted in (False, True):
        bills = [bill for (_, bill), there in zip(decoded, was_there, strict=True) if there is wasted]
        if bills:
            engine_ns = sum(bill.engine_ns for bill in bills)
            samples = sum(bill.audio_samples for bill in bills)
            total = replace(bills[0], engine_ns=engine_ns, audio_samples=samples)
            charges.write_charge(tx, claim.job.id, claim.attempt, total, wasted=wasted)


def save_last_chunks(tx: Connection, decoded: Sequence[tuple[Claim, DecodedChunk, Charge]]) -> None:
    """Like `save_chunk`, each of another job whose row this transaction holds; all decoded by one worker."""
    if not decoded:
        return
    rows = [_row(claim, chunk) for claim, chunk, _ in decoded]
    saved = {row.job_id for row in _SAVED.execute(tx, rows)}
    charges.charge_jobs(
        tx,
        [
            charges.Due(claim.job, claim.attempt, charge, wasted=claim.job.id not in saved)
            for claim, _, charge in decoded
        ],
    )


_SAVED = ManyRows(
    chunks,
    [column.name for column in chunks.c if column.name != "created_at"],
    {"created_at": now_utc()},
    skip=True,
    returning=[chunks.c.job_id, chunks.c.channel, chunks.c.number],
)


def _row(claim: Claim, chunk: DecodedChunk) -> dict[str, Any]:
    return values_of(chunk, DecodedChunk) | {"job_id": claim.job.id, "attempt": claim.attempt}


_read = reader_of(DecodedChunk)


def load_chunks(tx: Connection, job_id: str, first: int = 0) -> list[DecodedChunk]:
    """All saved chunks of the job, by channel and number, from number `first` on."""
    rows = tx.execute(
        select(chunks)
        .where(chunks.c.job_id == job_id, chunks.c.number >= first)
        .order_by(chunks.c.channel, chunks.c.number)
    )
    return list(map(_read, rows))


def load_settled_texts(tx: Connection, job_id: str, first: int) -> list[str]:
    """The text of each saved chunk from number `first` on that will not change any more: up to a chunk that
    is missing, or that overlaps its neighbor, which may still change its words. Nothing if channels are
    kept apart, whose words are put in order at the end."""
    columns = [column for column in chunks.c if column.name not in ("emissions", "lattice", "nbest")]
    rows = tx.execute(
        select(*columns).where(chunks.c.job_id == job_id, chunks.c.number >= first).order_by(chunks.c.number)
    )
    texts: list[str] = []
    for row in rows:
        overlaps = row.start_sample < row.core_start or row.end_sample > row.core_end
        if row.channel > 0 or row.number != first + len(texts) or overlaps:
            break
        texts.append(join_words(word["text"] for word in row.words))
    return texts


def drop_emissions(tx: Connection, job_id: str) -> None:
    """Delete the emissions of the job's chunks, which only the assembly of its transcript needs."""
    kept = chunks.c.emissions.is_not(None)
    tx.execute(update(chunks).where(chunks.c.job_id == job_id, kept).values(emissions=None))


def drop_stale(tx: Connection, claim: Claim, fingerprint: str) -> int:
    """Delete the chunks that other options or weights decoded; bill their time as wasted. Returns how many.

    An attempt decodes by one fingerprint, so all of it goes or none. Raises LeaseLost.
    """
    lock_claim(tx, claim)
    stale = chunks.c.fingerprint.is_distinct_from(fingerprint)
    gone = tx.execute(
        delete(chunks).where(chunks.c.job_id == claim.job.id, stale).returning(chunks.c.attempt)
    )
    attempts = [row.attempt for row in gone]
    for attempt in sorted(set(attempts)):
        # Their time is on the same line of the bill.
        tx.execute(
            delete(channel_passes).where(
                channel_passes.c.job_id == claim.job.id, channel_passes.c.attempt == attempt
            )
        )
        charges.waste(tx, claim.job.id, attempt)
    return len(attempts)
