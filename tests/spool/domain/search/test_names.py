"""Which names a correction writes."""

import pytest

from spool.domain import find_names


@pytest.mark.parametrize(
    ("heard", "text", "names"),
    [
        ("keep the light burning", "keep the Ærø burning", ["Ærø"]),
        ("saw aida loon at sea", "saw Ada Lund at sea", ["Ada Lund"]),
        ("saw aida loon and both there", "saw Ada Lund, Bo Ek there", ["Ada Lund", "Bo Ek"]),
        ("with doctor loon", "with Dr. Lund", ["Dr. Lund"]),
        ("the lamp of arrow", "the lamp of “Ærø”.", ["Ærø"]),
        ("ada lund", "Ada Lund", []),  # the same words
        ("keep the light", "keep the lamp", []),
        ("keep light", "keep the light of Ærø", []),  # nothing stood there before
        ("keep the light", "", []),
        ("a b c", "1914 1915 1916", []),
        ("a b", "One Two Three Four Five Six", []),
        ("a b", "One Two Three Four Five", ["One Two Three Four Five"]),
        ("a b", "O" * 201, []),
        ("まち とう", "東京 とう", ["東京"]),
        ("Thee boat. Yew saw it", "The boat. You saw it", []),  # as the recognised words are
        ("thee boat", "Ærø boat", ["Ærø"]),
    ],
)
def test_names_are_capitalised_words_in_place_of_others(heard: str, text: str, names: list[str]) -> None:
    assert find_names(heard.split(), text) == names


def test_the_word_before_says_whether_a_sentence_begins() -> None:
    assert find_names(["Yew"], "You", "gone.") == []
    assert find_names(["Yew"], "You", "gone") == ["You"]
    assert find_names(["loon"], None) == []
