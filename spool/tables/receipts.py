"""Receipts of finished jobs, and the public keys with which they were signed."""

from dataclasses import dataclass
from typing import Annotated

from sqlalchemy import CheckConstraint

from spool.domain.columns import Length
from spool.tables.base import job_key
from spool.tables.record import table_of

KEY_ID = 16


@dataclass(frozen=True)
class StoredReceipt:
    """What the worker states of one attempt that ended well, in canonical form, and its signature once one
    was asked for. Neither changes afterwards."""

    attempt: int
    statement: str
    key_id: Annotated[str, Length(KEY_ID)] | None = None
    signature: Annotated[str, Length(128)] | None = None


@dataclass(frozen=True)
class ReceiptKey:
    """The public key of a receipt, in PEM: kept, so that old receipts can be checked once another key
    signs."""

    id: Annotated[str, Length(KEY_ID)]
    pem: str


receipts = table_of(
    "receipts",
    StoredReceipt,
    job_key(),
    CheckConstraint("(key_id IS NULL) = (signature IS NULL)", name="signed"),
    key=("attempt",),
)
receipt_keys = table_of("receipt_keys", ReceiptKey)
