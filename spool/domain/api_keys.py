"""The format of an API key, the digest that is stored of it, and the scopes that it may have.

`spool_<id>_<secret and checksum>`: secret scanners recognize the prefix, the id finds the row, the secret has
256 random bits, and the checksum detects a mistyped key without a query. Only the SHA-256 of the whole key is
stored; a random secret of that length needs no slow hash.
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
KEY_PATTERN = rf"{PREFIX}{_DIGIT}{{{LENGTH}}}_{_DIGIT}{{{_SECRET + _CHECKSUM}}}"
"""The pattern for secret scanners."""

_FORM = re.compile(KEY_PATTERN)


class Scope(StrEnum):
    """What a key allows."""

    READ = "read"
    """Read jobs, batches, transcripts and costs."""
    SUBMIT = "submit"
    """Submit, cancel and retry."""
    CLOSED = "closed"
    """Open what is closed to readers, which is logged, and lift closures."""
    ADMIN = "admin"
    """Everything in every project, and the fleet."""


@dataclass(frozen=True, slots=True)
class Minted:
    """A new key. `text` is shown once and stored nowhere."""

    id: str
    sha256: str
    text: str = field(repr=False)


def mint_key() -> Minted:
    """Create a key. Its secret is in the answer only; the database gets its hash."""
    key_id = new_id("key")
    body = f"{key_id.removeprefix('key_')}_{_digits(secrets.randbits(256), _SECRET)}"
    text = f"{PREFIX}{body}{_checksum(body)}"
    return Minted(key_id, digest_key(text), text)


def key_id_of(text: str) -> str | None:
    """The id in a key; None if `text` does not look like a key."""
    if not _FORM.fullmatch(text):
        return None
    body, checksum = text[len(PREFIX) : -_CHECKSUM], text[-_CHECKSUM:]
    return f"key_{body[:LENGTH]}" if _checksum(body) == checksum else None


def digest_key(text: str) -> str:
    """The digest of a key, which is what is stored."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_same_key(text: str, sha256: str) -> bool:
    """Whether `text` is the key with this digest, compared in constant time."""
    return hmac.compare_digest(digest_key(text), sha256)


def _checksum(body: str) -> str:
    return _digits(zlib.crc32(body.encode()), _CHECKSUM)


def _digits(value: int, length: int) -> str:
    return "".join(ALPHABET[(value >> shift) & 31] for shift in range(5 * (length - 1), -1, -5))
