"""Files of phrases are read as people write them, and refused with the line that is broken."""

import pytest

from spool.domain import MOST_GLOSSARY_BYTES, parse_reference, read_glossary_csv, read_glossary_text
from spool.errors import InvalidRequest


def test_a_text_has_a_phrase_a_line() -> None:
    assert read_glossary_text("\ufefffog  horn\r\n# a comment\n\n Heligoland\nfog horn\n").phrases == (
        "Heligoland",
        "fog horn",
    )


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ('id,Phrase,note\n1,"Lee, Ann",\n2,fog horn,x\n', ("Lee, Ann", "fog horn")),
        ("Heligoland,north\nAmrum,north\n\n", ("Amrum", "Heligoland")),
        ('\ufeff"fog\nhorn"\n', ("fog horn",)),
    ],
)
def test_a_csv_has_them_in_a_column(text: str, phrases: tuple[str, ...]) -> None:
    assert read_glossary_csv(text).phrases == phrases


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("phrase,n\na,1\nb\n", "line 3: expected 2 columns, found 1"),
        ('a\n"b\nc\n', "line 2: is not valid CSV: unexpected end of data"),
        ('a\n"b"c\n', "line 2: is not valid CSV"),
        ("a\nb\x00c\n", "line 2: must not contain control characters"),
        ("a\n" + "b" * 201, "line 2: String should have at most 200 characters"),
        ("phrase\n", "It contains no phrases"),
        ("", "It contains no phrases"),
        ("\n".join(map(str, range(10_001))), "at most 10000 phrases"),
        ("é" * (MOST_GLOSSARY_BYTES // 2 + 1), f"at most {MOST_GLOSSARY_BYTES} bytes"),
    ],
)
def test_what_is_broken_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read_glossary_csv(text)


def test_a_glossary_is_named_with_or_without_a_version() -> None:
    assert parse_reference("street-names") == ("street-names", None)
    assert parse_reference("street-names@12") == ("street-names", 12)
    for wrong in ("", "names@", "names@0", "names@x", "../names", "names@1\n", "na mes"):
        with pytest.raises(InvalidRequest, match="NAME@VERSION"):
            parse_reference(wrong)
