"""Signatures as the specification's own example has them, and the waits between tries."""

import base64
import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from spool.domain.webhooks import RETRY_SECONDS, new_secret, signatures, wait_after

# The example of the specification's reference libraries
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE, TIMESTAMP, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_signature_is_the_specifications() -> None:
    assert signatures([SECRET], MESSAGE, TIMESTAMP, BODY) == SIGNATURE


def test_two_secrets_sign_side_by_side_and_each_verifies() -> None:
    new, now = new_secret(), int(time.time())
    both = signatures([new, SECRET], MESSAGE, now, BODY)
    headers = {"webhook-id": MESSAGE, "webhook-timestamp": str(now), "webhook-signature": both}
    for secret in (new, SECRET):
        assert Webhook(secret).verify(BODY, headers) == {"test": 2432232314}
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new).verify(BODY + b" ", headers)


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
