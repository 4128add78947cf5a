"""Webhooks by the Standard Webhooks specification: secrets, and the times of retries. Pure."""

import base64
import random
import secrets

_PREFIX = "whsec_"
TEST_TYPE = "webhook.test"
RETRY_SECONDS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0)
"""Waits after the first attempt, the second and so on: 27.5 hours in all."""
RETRY_AFTER_MOST_S = 24 * 3600.0
_JITTER = 0.1
_SECRET_BYTES = 32


def new_secret() -> str:
    """A new secret in the form for receivers: `whsec_` and base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def wait_after(failures: int, retry_after: float | None = None) -> float | None:
    """Seconds until the next attempt after `failures` failed ones (from 1); None for no further attempt.

    `retry_after` is the receiver's request; it can only lengthen the wait.
    """
    if failures > len(RETRY_SECONDS):
        return None
    planned = RETRY_SECONDS[failures - 1]
    # Only later, so that no receiver gets it before the documented wait.
    planned *= random.uniform(1.0, 1.0 + _JITTER)  # noqa: S311 - spreads load, guards nothing
    return max(planned, min(retry_after or 0.0, RETRY_AFTER_MOST_S))
