"""Words, numbers and what is none, as phones."""

from pathlib import Path

import pytest

from spool.errors import ModelUnreadable, UnknownModel
from spool.sounds.dictionary import lexicon_of
from spool.sounds.lexicon import parse_entries, read_lexicon
from spool.sounds.numbers import spell_number
from spool.sounds.phones import PHONES
from tests.spool.sounds.sounds import DICTIONARY, LEXICON


def said(token: str) -> list[str]:
    return [" ".join(PHONES[phone] for phone in way) for way in LEXICON.pronounce(token)]


@pytest.mark.parametrize(
    ("token", "ways"),
    [
        ("Music,", ["M Y UW Z IH K"]),
        ("close", ["K L OW S", "K L OW Z"]),
        ("teacher\u2019s", ["T IY CH ER Z"]),
        ("videos", ["V IH D IY OW Z"]),
        ("reasons'", ["R IY Z AH N Z"]),
        ("quiet-music", ["K W AY AH T M Y UW Z IH K"]),
        ("3", ["TH R IY"]),
        ("xyzzy", []),
        ("\u2014", []),
        ("\u043c\u0438\u0440", []),
        ("", []),
    ],
)
def test_a_token_is_pronounced_or_not(token: str, ways: list[str]) -> None:
    assert said(token) == ways


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("0", "zero"),
        ("17", "seventeen"),
        ("42", "forty two"),
        ("100", "one hundred"),
        ("1,200", "one thousand two hundred"),
        ("1995", "nineteen ninety five"),
        ("1905", "nineteen oh five"),
        ("2005", "two thousand five"),
        ("3.05", "three point zero five"),
        ("21st", "twenty first"),
        ("12th", "twelfth"),
        ("20th", "twentieth"),
        ("60s", "sixties"),
        ("10:30", "ten thirty"),
        ("007", "zero zero seven"),
        ("9999999999999", "nine " * 13),
        ("1.", "one"),
        ("00:00", ""),
    ],
)
def test_numbers_are_words(token: str, words: str) -> None:
    assert spell_number(token) == words.split()


def test_broken_lines_are_passed_over_and_a_broken_file_is_refused(tmp_path: Path) -> None:
    entries, broken = parse_entries(["good G UH D", "bad", "worse W XX S", "", ";;; a comment", "two T UW1"])
    assert sorted(entries) == ["good", "two"]
    assert broken == 2
    path = tmp_path / "cmudict-en-us.dict"
    with pytest.raises(UnknownModel, match=r"needs cmudict-en-us\.dict beside its model"):
        lexicon_of(tmp_path)
    path.write_text(DICTIONARY)
    with pytest.raises(
        ModelUnreadable, match=r"cmudict-en-us\.dict: not a pronunciation dictionary: 3\d words"
    ):
        read_lexicon(path)
    lines = [f"word{number} W ER D" for number in range(2000)]
    path.write_text("\n".join(lines + ["broken line here"] * 300))
    assert read_lexicon(path).pronounce("word7")
    path.write_text("\n".join(lines + ["broken line here"] * 900))
    with pytest.raises(ModelUnreadable, match="900 lines that are none"):
        read_lexicon(path)
    path.write_bytes(bytes(range(256)) * 100)
    with pytest.raises(ModelUnreadable, match="not a pronunciation dictionary"):
        read_lexicon(path)
