"""Receipts: written with the end of their job, signed once, deleted with the transcript."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, delete, select, update

from spool.domain.receipts import PublicKey, Signature
from spool.errors import NotFound
from spool.store.sql import ManyRows
from spool.tables import receipt_keys, receipts
from spool.tables.receipts import ReceiptKey, StoredReceipt
from spool.tables.record import reader_of, values_of

_receipt_of = reader_of(StoredReceipt)
_NAMES = ("job_id", "attempt", "statement")
_KEPT = ManyRows(receipts, _NAMES)
_KEYS = ManyRows(receipt_keys, ["id", "pem"], skip=True)


def keep_statements(tx: Connection, statements: Iterable[tuple[str, int, str]]) -> None:
    """Write what is stated of these jobs, by id and attempt; the transaction holds their rows. An empty text
    is nothing."""
    rows = [dict(zip(_NAMES, each, strict=True)) for each in statements if each[-1]]
    if rows:
        _KEPT.execute(tx, rows)


def receipt_of(tx: Connection, job_id: str, attempt: int | None = None) -> StoredReceipt:
    """The receipt of the job's last attempt that made a transcript, or of this one. Raises NotFound."""
    query = select(*receipts.c).where(receipts.c.job_id == job_id)
    if attempt is not None:
        query = query.where(receipts.c.attempt == attempt)
    row = tx.execute(query.order_by(receipts.c.attempt.desc()).limit(1)).one_or_none()
    if row is None:
        which = "" if attempt is None else f" of attempt {attempt}"
        raise NotFound(f"Job {job_id} has no receipt{which}.")
    return _receipt_of(row)


def sign_receipt(
    tx: Connection, job_id: str, attempt: int, signature: Signature, key: PublicKey
) -> StoredReceipt:
    """Keep the signature unless the receipt has one, and its key; the receipt as it is then."""
    _KEYS.execute(tx, [values_of(ReceiptKey(key.id, key.pem), ReceiptKey)])
    own = (receipts.c.job_id == job_id, receipts.c.attempt == attempt, receipts.c.signature.is_(None))
    tx.execute(update(receipts).where(*own).values(key_id=signature.key_id, signature=signature.value))
    return receipt_of(tx, job_id, attempt)


def keys_of_receipts(tx: Connection) -> Mapping[str, str]:
    """The public keys with which receipts were signed, in PEM, by id."""
    return {row.id: row.pem for row in tx.execute(select(*receipt_keys.c).order_by(receipt_keys.c.id))}


def drop_receipts(tx: Connection, job_ids: Sequence[str]) -> None:
    """Delete the receipts of these jobs."""
    tx.execute(delete(receipts).where(receipts.c.job_id.in_(job_ids)))
