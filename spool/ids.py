"""Identifiers that sort by the time they were made: a prefix and a ULID (Crockford base 32, 26 characters).

They are names, not clocks: nothing in Spool compares two of them to decide what came first.
"""

import os

from spool import clock

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford: no I, L, O, U
LENGTH = 26
_RANDOM_BITS = 80

_lock = clock.Lock()
_last = 0


def new_id(prefix: str) -> str:
    """A fresh identifier such as `job_01K9…`: 48 bits of Unix milliseconds, then 80 random bits.

    Those that a process makes within one millisecond count up from the first (the ULID specification's
    monotonic way), so that the jobs of a batch sort in the order of its manifest.
    """
    global _last
    milliseconds = clock.time_ns() // 1_000_000
    with _lock:
        if milliseconds == _last >> _RANDOM_BITS:
            _last += 1
        else:
            _last = milliseconds << _RANDOM_BITS | int.from_bytes(os.urandom(10), "big")
        value = _last
    digits = (ALPHABET[(value >> shift) & 31] for shift in range(5 * (LENGTH - 1), -1, -5))
    return f"{prefix}_{''.join(digits)}"


def is_id(text: str, prefix: str) -> bool:
    """Whether `text` could have come from `new_id(prefix)`."""
    body = text.removeprefix(f"{prefix}_")
    return len(body) == LENGTH and len(text) == len(body) + len(prefix) + 1 and set(body) <= set(ALPHABET)
