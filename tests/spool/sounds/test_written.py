"""The written words that stand where phones were heard."""

import pytest

from spool.sounds.letters import spell_sounds
from spool.sounds.written import TimedWord, find_written

OKONKWO = spell_sounds("okonkwo")[0]


def words(text: str) -> list[TimedWord]:
    """Each half a second long, from the first second on."""
    return [TimedWord(word, 1 + at / 2, 1.4 + at / 2) for at, word in enumerate(text.split())]


@pytest.mark.parametrize(
    ("text", "start", "end", "found"),
    [
        ("we met oh conquer there", 2.0, 2.9, (2, 3)),
        ("we met oh conquer there", 1.85, 2.95, (2, 3)),
        ("we met a conqueror there", 2.45, 2.95, (3, 3)),
        ("we met there", 2.1, 2.4, (2, 2)),
        ("we met there", 9.0, 9.6, None),
        ("", 1.0, 2.0, None),
    ],
)
def test_words_are_those_that_sound_so_and_are_said_then(
    text: str, start: float, end: float, found: tuple[int, int] | None
) -> None:
    assert find_written(words(text), start, end, OKONKWO, None) == found
