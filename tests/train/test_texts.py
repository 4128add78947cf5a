"""Sentences of synthetic speech: known words, none of the held-out ones."""

from pathlib import Path

import numpy as np
import pytest

from ops.train.data import texts
from ops.train.data.texts import DIGITS, WORDS, Sentences, english, fortunes, outside, plain, wordnet


def test_plain_text_has_no_marks_and_nothing_is_lost_in_silence() -> None:
    assert plain("\"Well-known\" - it's the boys' (old) one!") == "well known it's the boys old one"
    assert plain("chapter 3") == ""
    assert plain("déjà vu") == ""


def test_phrases_are_read_where_packages_put_them(tmp_path: Path) -> None:
    (tmp_path / "data.verb").write_text(
        'x | move; "he ran down the stairs"; "too short"; "it cost $ 5 then"\n'
    )
    assert list(wordnet(tmp_path)) == ["he ran down the stairs"]
    (tmp_path / "work").write_text(
        "One cannot rest. Go!\n\t-- Somebody\n%\nNothing is 100 % sure.\n%\nAll is well now.\n"
    )
    (tmp_path / "work.dat").write_bytes(b"\0")
    (tmp_path / "art").write_text("a picture of something\n")
    (tmp_path / "data.verb").unlink()
    assert list(fortunes(tmp_path)) == ["one cannot rest", "all is well now"]
    assert list(fortunes(tmp_path / "absent")) == []


def test_other_languages_and_held_sentences_are_left_out() -> None:
    known = {"all", "is", "well"}
    assert list(english(["all is well", "tutto va bene"], known)) == ["all is well"]
    held = {"he was here", "look there"}
    assert outside(["then he was here again", "look there", "he was", "he was"], held) == [
        "look there",
        "he was",
    ]


def test_sentences_hold_known_words_alone_and_repeat_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "names", list)
    monkeypatch.setattr(texts, "wordnet", lambda: iter(["a stone in the sea", "the sea is old"]))
    monkeypatch.setattr(texts, "fortunes", lambda: iter(()))
    source = Sentences(["the old man", "and the sea", "the old man and the sea"], {"and the sea"})
    first, second = ([source.draw(np.random.default_rng((9, n))) for n in range(300)] for _ in range(2))
    assert first == second
    assert "and the sea" not in first
    words = {"the", "old", "man", "and", "sea", "a", "stone", "in", "is", *DIGITS, *WORDS}
    assert {word for text in first for word in text.split()} <= words
    assert "stone" in {word for text in first for word in text.split()}
