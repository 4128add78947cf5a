"""When an utterance ends: WeNet's three rules, and the speech detector's."""

import pytest

from worker.live import EndpointRules, Reason

RULES = EndpointRules()


@pytest.mark.parametrize(
    ("has_words", "silence", "length", "unvoiced", "reason"),
    [
        (False, 4.96, 5.0, None, None),
        (False, 5.0, 5.0, None, "silence"),
        (True, 0.96, 3.0, None, None),
        (True, 1.0, 3.0, None, "silence"),
        (True, 0.0, 19.96, None, None),
        (True, 0.0, 20.0, None, "length"),
        (False, 0.0, 20.0, None, "length"),
        (True, 0.48, 3.0, 0.8, "no_speech"),
        (True, 0.08, 3.0, 0.8, None),  # a word came just now: the search lags behind the voice
        (True, 0.48, 3.0, 0.7, None),
        (False, 0.48, 3.0, 4.0, None),
    ],
)
def test_rules(
    has_words: bool, silence: float, length: float, unvoiced: float | None, reason: Reason | None
) -> None:
    given = RULES.find_end(has_words=has_words, silence=silence, length=length, unvoiced=unvoiced)
    assert given == reason
