"""Words that may name somebody, a phone number or an address: suggestions, by rules that a person can check.

Pure. Names: two or more words in a row with a capital, of which the first does not begin a sentence. Phone
numbers: seven or more digits in a row of words. Addresses: a number beside a word for a street. All of them
miss much and are often wrong; in texts without capitals no name is found.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from spool.domain.archive.closures import PLACEHOLDER
from spool.domain.spacing import join_words
from spool.domain.transcript import Transcript, Word

_NUMBER = re.compile(r"[+(]*\d[\d()./-]*[,;:]?")
_HOUSE = re.compile(r"\d{1,5}[a-z]?[,.]?", re.IGNORECASE)
_STREETS = frozenset(
    {
        *("street", "st", "road", "rd", "avenue", "ave", "lane", "ln", "drive", "square", "court", "place"),
        *(
            "boulevard",
            "straße",
            "strasse",
            "gasse",
            "weg",
            "allee",
            "platz",
            "rue",
            "chemin",
            "via",
            "calle",
        ),
    }
)
_STREET_ENDS = ("straße", "strasse", "gasse", "platz", "weg")
_LEAST_DIGITS, _MOST_DIGITS = 7, 15
_BETWEEN = 3
"""Words between a house number and the word for the street, at most."""


PrivateKind = Literal["name", "phone", "address"]


@dataclass(frozen=True, slots=True)
class Private:
    """A suggestion: what it looks like, and where."""

    kind: PrivateKind
    text: str
    start: float
    end: float

    @property
    def digest(self) -> str:
        """Of what it is and its words, wherever they are said; SHA-256 (hex)."""
        return digest_of(self.kind, self.text)


def digest_of(kind: PrivateKind, text: str) -> str:
    """What a decision about a suggestion is known by, whatever the case of its letters."""
    words = " ".join(text.casefold().split()).rstrip(".,;:?!\u2026")
    return hashlib.sha256(f"{kind}\n{words}".encode()).hexdigest()


def find_private(transcript: Transcript) -> list[Private]:
    """What a person may want to close, by time."""
    words = transcript.words
    found = [
        *(_of("name", words, *place) for place in _names(words)),
        *(_of("phone", words, *place) for place in _phones(words)),
        *(_of("address", words, *place) for place in _addresses(words)),
    ]
    return sorted(found, key=lambda each: (each.start, each.kind))


def _of(kind: PrivateKind, words: Sequence[Word], first: int, after: int) -> Private:
    own = words[first:after]
    return Private(kind, join_words(word.text for word in own), own[0].start, own[-1].end)


def _names(words: Sequence[Word]) -> Iterator[tuple[int, int]]:
    for first, after in _runs([_is_name(word.text) for word in words]):
        begins = first == 0 or words[first - 1].text[-1:] in ".?!…"
        first += begins  # a sentence's first word has a capital whatever it is
        if after - first >= 2 or (after - first == 1 and not begins and len(words[first].text) > 1):
            yield first, after


def _is_name(text: str) -> bool:
    return text[:1].isupper() and text[1:2].islower() and text != PLACEHOLDER


def _phones(words: Sequence[Word]) -> Iterator[tuple[int, int]]:
    for first, after in _runs([bool(_NUMBER.fullmatch(word.text)) for word in words]):
        digits = sum(letter.isdigit() for word in words[first:after] for letter in word.text)
        if _LEAST_DIGITS <= digits <= _MOST_DIGITS:
            yield first, after


def _addresses(words: Sequence[Word]) -> Iterator[tuple[int, int]]:
    for at, word in enumerate(words):
        text = word.text.lower().strip(".,;")
        if text not in _STREETS and not text.endswith(_STREET_ENDS):
            continue
        if at + 1 < len(words) and _HOUSE.fullmatch(words[at + 1].text):
            yield at, at + 2
            continue
        for back in range(1, _BETWEEN + 1):
            if at - back >= 0 and _HOUSE.fullmatch(words[at - back].text):
                yield at - back, at + 1
                break


def _runs(marks: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Where runs of true begin, and the place after each."""
    edges = [False, *marks, False]
    changes = [at for at, (one, two) in enumerate(pairwise(edges)) if one != two]
    return zip(changes[::2], changes[1::2], strict=True)
