"""A name in place of what is written, and where it stands already."""

import pytest

from spool.domain.archive.spreading import is_name_at, put_name
from spool.domain.search.names import NameChange, find_name_changes


@pytest.mark.parametrize(
    ("written", "name", "now"),
    [
        ("oh conquer", "Okonkwo", "Okonkwo"),
        ("(oh conquer,", "Okonkwo", "(Okonkwo,"),
        ("conquer's", "Okonkwo", "Okonkwo's"),
        ("conquer\u2019s.", "Okonkwo", "Okonkwo\u2019s."),
        ("conquer's", "Okonkwo's", "Okonkwo's"),
    ],
)
def test_punctuation_stays(written: str, name: str, now: str) -> None:
    assert put_name(written, name) == now


@pytest.mark.parametrize(
    ("text", "first", "last", "right"),
    [
        ("then Ada Lund came", 1, 1, True),
        ("then Ada Lund's boat", 2, 2, True),
        ("then ada, LUND. came", 0, 1, True),
        ("then Ada Lund came", 3, 3, False),
        ("then Ada Lunt came", 1, 2, False),
        ("Lund", 0, 0, False),
    ],
)
def test_a_name_that_is_right_is_known(text: str, first: int, last: int, right: bool) -> None:
    assert is_name_at(text.split(), first, last, "Ada Lund") is right


def test_what_a_name_replaced_is_known_only_where_nothing_else_was_replaced_with_it() -> None:
    heard = ["we", "met", "oh", "conquer", "and", "a", "dunce"]
    assert list(find_name_changes(heard, "we met Okonkwo and Ada once")) == [
        NameChange("Okonkwo", ("oh", "conquer")),
        NameChange("Ada", ()),
    ]
