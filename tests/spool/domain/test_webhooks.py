"""The secrets of webhooks, and the waits between tries."""

import base64

from spool.domain import RETRY_SECONDS, new_secret, wait_after


def test_a_secret_has_the_form_and_strength_of_the_specification() -> None:
    secret = new_secret()
    assert secret.startswith("whsec_")
    assert 24 <= len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) <= 64
    assert secret != new_secret()


def test_waits_grow_over_about_a_day_and_end() -> None:
    waits = [wait_after(failures) for failures in range(1, len(RETRY_SECONDS) + 1)]
    for wait, planned in zip(waits, RETRY_SECONDS, strict=True):
        assert wait is not None
        assert planned <= wait <= 1.1 * planned
    assert 24 * 3600 < sum(RETRY_SECONDS) < 30 * 3600
    assert wait_after(len(RETRY_SECONDS) + 1) is None
    assert len({wait_after(3) for _ in range(20)}) > 1, "jitter"


def test_a_receiver_may_ask_for_more_time_and_for_no_more_than_a_day() -> None:
    assert wait_after(1, 3600) == 3600
    assert (wait_after(1, 10**9) or 0) == 24 * 3600
    assert (wait_after(4, 1) or 0) >= RETRY_SECONDS[3]
