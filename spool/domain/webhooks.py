"""Webhooks by the Standard Webhooks specification: secrets, signatures, and when a failed one is tried again.

Pure: knows neither SQL nor HTTP.
"""

import base64
import hashlib
import hmac
import random
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"
TEST_TYPE = "webhook.test"
RETRY_SECONDS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0)
"""Waits after the first try, the second and so on: 27 hours and a half in all."""
RETRY_AFTER_MOST_S = 24 * 3600.0
_JITTER = 0.1
_SECRET_BYTES = 32


def new_secret() -> str:
    """A secret that nobody has seen yet, as receivers are given it: `whsec_` and base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signatures(keys: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`: one `v1` signature for each secret, with spaces between."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(f"v1,{_signature(key, signed)}" for key in keys)


def wait_after(failures: int, retry_after: float | None = None) -> float | None:
    """Seconds until the next try after so many failed ones (from 1); None when it is given up.

    `retry_after` is what the receiver asked for; it can only make the wait longer.
    """
    if failures > len(RETRY_SECONDS):
        return None
    planned = RETRY_SECONDS[failures - 1]
    # Only later, so that nobody is asked before the wait that the page promises.
    planned *= random.uniform(1.0, 1.0 + _JITTER)  # noqa: S311 - spreads load, guards nothing
    return max(planned, min(retry_after or 0.0, RETRY_AFTER_MOST_S))


def _signature(key: str, signed: bytes) -> str:
    secret = base64.b64decode(key.removeprefix(PREFIX))
    return base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
