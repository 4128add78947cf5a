"""Identifiers that sort by the time they were made: a prefix and a ULID (Crockford base 32, 26 characters).

They are names, not clocks: nothing in Spool compares two of them to decide what came first.
"""

import os
import time

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford: no I, L, O, U
LENGTH = 26


def new_id(prefix: str) -> str:
    """A fresh identifier such as `job_01K9…`: 48 bits of Unix milliseconds, then 80 random bits."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    digits = (ALPHABET[(value >> shift) & 31] for shift in range(5 * (LENGTH - 1), -1, -5))
    return f"{prefix}_{''.join(digits)}"


def is_id(text: str, prefix: str) -> bool:
    """Whether `text` could have come from `new_id(prefix)`."""
    body = text.removeprefix(f"{prefix}_")
    return len(body) == LENGTH and len(text) == len(body) + len(prefix) + 1 and set(body) <= set(ALPHABET)
