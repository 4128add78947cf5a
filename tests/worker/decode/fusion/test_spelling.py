"""Phrases are folded to what a tokenizer can spell; what it cannot spell boosts nothing and fails nothing."""

import pytest

from worker.decode import find_unspelled, make_fusion, spell, warn_of_unspelled
from worker.models import WORD_START, DecodeRequest, SearchOptions, Tokenizer

LOWER = Tokenizer([WORD_START, *"abcdefghijklmnopqrstuvwxyz'"])
UPPER = Tokenizer([WORD_START, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ'"])
GERMAN = Tokenizer([WORD_START, *"abcdefghijklmnopqrstuvwxyzäöüßABCDEFGHIJKLMNOPQRSTUVWXYZ-."])


def spelled(tokenizer: Tokenizer, phrase: str) -> str | None:
    tokens = spell(tokenizer, phrase)
    return None if tokens is None else tokenizer.decode(tokens)


@pytest.mark.parametrize(
    ("tokenizer", "phrase", "text"),
    [
        (LOWER, "fog horn", "fog horn"),
        (LOWER, "Heligoland", "heligoland"),
        (UPPER, "Heligoland", "HELIGOLAND"),
        (LOWER, "Zoë O\u2019Brien", "zoe o'brien"),
        (LOWER, "Straße 'Nord-Ost', Łódź!", "strasse 'nord ost' lodz"),
        (GERMAN, "Müller-Lüdenscheidt", "Müller-Lüdenscheidt"),
        (GERMAN, "Müller, Göring & Co.", "Müller Göring Co"),
        (GERMAN, "Čapek", "Capek"),
        (LOWER, "\uff46\uff55\uff4c\uff4c", "full"),
        (LOWER, "猫", None),
        (LOWER, "Gate 42", None),
        (LOWER, "—", None),
    ],
)
def test_the_closest_form_that_can_be_spelled(tokenizer: Tokenizer, phrase: str, text: str | None) -> None:
    assert spelled(tokenizer, phrase) == text


def test_what_cannot_be_spelled_is_left_out_and_named() -> None:
    phrases = ("Heligoland", "猫", "Gate 42")
    assert find_unspelled(LOWER, phrases) == ["猫", "Gate 42"]
    assert find_unspelled(LOWER, ()) == []
    fusion = make_fusion(LOWER, SearchOptions(), [DecodeRequest(phrases=phrases)])
    assert fusion is not None
    assert make_fusion(LOWER, SearchOptions(), [DecodeRequest(phrases=("猫",))]) is None
    assert warn_of_unspelled(["猫"]) == "boost: the model has no tokens for '猫'; skipped"
    assert warn_of_unspelled(["猫"] * 25).endswith(" and 5 more; skipped")
