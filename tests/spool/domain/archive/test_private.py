"""Suggestions of what names somebody: simple rules, for a person to decide."""

import pytest

from ops.testbed.running_api import transcript_of
from spool.domain.archive.private import find_private


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("then Ada Lund came home.", [("name", "Ada Lund")]),
        ("Then she came. Nobody knew.", []),  # a sentence begins with a capital
        ("Yesterday Ada Lund came.", [("name", "Ada Lund")]),
        ("I went and I came back", []),
        ("call 0171 555 0199 today", [("phone", "0171 555 0199")]),
        ("in 1974 we had 30 of them", []),
        ("at 14 Harbour Street then", [("address", "14 Harbour Street"), ("name", "Harbour Street")]),
        ("in der Hafenstraße 7 dort", [("address", "Hafenstraße 7"), ("name", "Hafenstraße")]),
        ("and [closed] said", []),
    ],
)
def test_words_that_look_like_somebody(text: str, found: list[tuple[str, str]]) -> None:
    transcript = transcript_of("job", tuple(text.split()))
    assert sorted((one.kind, one.text) for one in find_private(transcript)) == sorted(found)
