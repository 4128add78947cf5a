"""The form of an API key: what is shown once, what is kept of it, what it may do.

`spool_<id>_<secret and checksum>`: the beginning is for scanners that look for secrets in commits, the id
finds the row, the secret has 256 random bits, and the checksum tells a mistyped key without asking a
database. Only the SHA-256 of the whole is kept: of 256 random bits that says nothing, and no slow hash is
needed. Knows no SQL and no HTTP.
"""

import hashlib
import hmac
import re
import secrets
import zlib
from dataclasses import dataclass, field
from enum import StrEnum

from spool.ids import ALPHABET, LENGTH, new_id

PREFIX = "spool_"
_SECRET = 52
_CHECKSUM = 7
_DIGIT = f"[{ALPHABET}]"
PATTERN = rf"{PREFIX}{_DIGIT}{{{LENGTH}}}_{_DIGIT}{{{_SECRET + _CHECKSUM}}}"
"""What a scanner looks for."""

_FORM = re.compile(PATTERN)


class Scope(StrEnum):
    """What a key lets its bearer do."""

    READ = "read"
    """Look at jobs, batches, transcripts and costs."""
    SUBMIT = "submit"
    """Hand in, cancel and retry."""
    ADMIN = "admin"
    """Everything, in every project, and look at the fleet."""


@dataclass(frozen=True, slots=True)
class Minted:
    """A new key. `text` is shown to its owner and kept nowhere."""

    id: str
    sha256: str
    text: str = field(repr=False)


def mint() -> Minted:
    """A key that nobody has seen yet."""
    key_id = new_id("key")
    body = f"{key_id.removeprefix('key_')}_{_digits(secrets.randbits(256), _SECRET)}"
    text = f"{PREFIX}{body}{_checksum(body)}"
    return Minted(key_id, digest(text), text)


def key_id_of(text: str) -> str | None:
    """The id of the key that `text` claims to be; None where it has not the form of one."""
    if not _FORM.fullmatch(text):
        return None
    body, checksum = text[len(PREFIX) : -_CHECKSUM], text[-_CHECKSUM:]
    return f"key_{body[:LENGTH]}" if _checksum(body) == checksum else None


def digest(text: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_same(text: str, sha256: str) -> bool:
    """Whether `text` is the key that this was kept of; a near miss takes as long as any other."""
    return hmac.compare_digest(digest(text), sha256)


def _checksum(body: str) -> str:
    return _digits(zlib.crc32(body.encode()), _CHECKSUM)


def _digits(value: int, length: int) -> str:
    return "".join(ALPHABET[(value >> shift) & 31] for shift in range(5 * (length - 1), -1, -5))
