"""What a person searches for, and where in a passage it is.

    reel forty-two          both, in one passage (a phrase where a word has several tokens)
    "keep the light"        the words one after the other
    light*                  words that begin so; the last word of a phrase may, too
    kowalski~               words that sound like it
    fog NEAR/3 horn         at most so many words apart (5 without a number), in either order
    -storm                  no such word in the passage

English numbers are found as they are said and as they are written (`spool.domain.archive.numbers`).
The databases answer which passages may match; `matches_query` says where the words are, by the same rules.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from spool.domain.archive.numbers import length_of_number, number_ways
from spool.domain.archive.passages import FOLLOWING, Passage
from spool.domain.archive.readings import AlternativeReading
from spool.domain.archive.tokens import sound_of, tokens_of
from spool.domain.spacing import join_words
from spool.errors import InvalidRequest

MOST_TERMS = 20
NEAR = 5
LEAST_PREFIX = 3

_PARTS = re.compile(r'-?"[^"]*"[*~]?|\S+')
_NEAR = re.compile(r"NEAR(?:/(\d{1,2}))?")


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase. `prefix`: its last token is the beginning of a word. `sound`: the key of a word
    searched by its sound, of which `spellings` are those that the archive has. `others`: the same numbers
    said or written in another way."""

    tokens: tuple[str, ...]
    prefix: bool = False
    sound: str | None = None
    spellings: tuple[str, ...] = ()
    others: tuple[tuple[str, ...], ...] = ()

    @property
    def ways(self) -> tuple[tuple[str, ...], ...]:
        """The tokens in each way that is found: none if no spelling of its sound is known."""
        return tuple((each,) for each in self.spellings) if self.sound else (self.tokens, *self.others)


@dataclass(frozen=True, slots=True)
class Near:
    """Two terms with at most `distance` words between them."""

    left: Term
    right: Term
    distance: int


@dataclass(frozen=True, slots=True)
class Query:
    """All of `wanted`, none of `unwanted`."""

    wanted: tuple[Term | Near, ...]
    unwanted: tuple[Term, ...] = ()


class Match(NamedTuple):
    """Words of a passage, `last` included. reading: the alternative that has to replace some of them for a
    match; text: the words that then match."""

    first: int
    last: int
    reading: AlternativeReading | None = None
    text: str = ""

    def confidence_in(self, passage: Passage) -> float | None:
        """The confidence of the least certain word of the match; None if the probability of its reading is
        unknown."""
        reading = self.reading
        known = [
            word.confidence
            for at, word in enumerate(passage.words[self.first : self.last + 1], self.first)
            if reading is None or not reading.first <= at <= reading.last
        ]
        if reading is None:
            return min(known)
        return None if reading.confidence is None else min([*known, reading.confidence])


def parse_query(text: str) -> Query:
    """Parse a query. Raises InvalidRequest, which says what is wrong."""
    parts = _PARTS.findall(text)
    if len(parts) > MOST_TERMS:
        raise InvalidRequest(f"A search has at most {MOST_TERMS} words and phrases, not {len(parts)}.")
    wanted: list[Term | Near] = []
    unwanted: list[Term] = []
    at = 0
    while at < len(parts):
        part = parts[at]
        near = _NEAR.fullmatch(parts[at + 1]) if at + 1 < len(parts) else None
        if near is not None:
            if at + 2 == len(parts):
                raise InvalidRequest(f"{near[0]} needs a word on both sides.")
            wanted.append(_near(part, parts[at + 2], int(near[1] or NEAR)))
            at += 3
            continue
        spoken = _spoken_number(parts[at:])
        at += max(1, spoken)
        if spoken:
            part = " ".join(parts[at - spoken : at])
        if part.startswith("-") and tokens_of(part):
            unwanted.append(_term(part[1:]))
        elif _NEAR.fullmatch(part):
            raise InvalidRequest(f"{part} needs a word on both sides.")
        elif tokens_of(part):
            wanted.append(_term(part))
    if not wanted:
        raise InvalidRequest("Nothing to search for: include at least one word that is not excluded.")
    return Query(tuple(wanted), tuple(unwanted))


def _spoken_number(parts: Sequence[str]) -> int:
    """How many of the first words together are one number; 0 if that is not two or more."""
    plain = list(
        takewhile(lambda part: part.isascii() and part.replace("-", "").isalpha() and part[0] != "-", parts)
    )
    if len(plain) < len(parts) and _NEAR.fullmatch(parts[len(plain)]):
        plain = plain[:-1]  # it belongs to NEAR
    for size in range(len(plain), 1, -1):
        tokens = tokens_of(" ".join(plain[:size]))
        if length_of_number(tokens) == len(tokens):
            return size
    return 0


def _near(left: str, right: str, distance: int) -> Near:
    if distance > FOLLOWING - 1:
        raise InvalidRequest(f"NEAR reaches at most {FOLLOWING - 1} words.")
    for side in (left, right):
        if side.startswith("-") or not tokens_of(side) or _NEAR.fullmatch(side):
            raise InvalidRequest("NEAR needs a word or a phrase on both sides.")
    return Near(_term(left), _term(right), distance)


def _term(part: str) -> Term:
    tokens = tokens_of(part)
    if part.endswith("~"):
        sound = sound_of(tokens[0]) if len(tokens) == 1 else None
        if sound is None:
            raise InvalidRequest(f"{part}: ~ follows one word of at least four letters.")
        return Term(tokens, sound=sound)
    prefix = part.endswith("*")
    if prefix and len(tokens[-1]) < LEAST_PREFIX:
        raise InvalidRequest(f"{part}: write at least {LEAST_PREFIX} letters before the asterisk.")
    return Term(tokens, prefix, others=() if prefix else number_ways(tokens))


def fuzzy_terms(query: Query) -> list[Term]:
    """The terms that are searched by their sound."""
    terms = [term for clause in query.wanted for term in _terms(clause)] + list(query.unwanted)
    return [term for term in terms if term.sound]


def with_spellings(query: Query, spellings: dict[Term, tuple[str, ...]]) -> Query:
    """A copy with the spellings that the archive has."""

    def spelt(term: Term) -> Term:
        return replace(term, spellings=spellings.get(term, ()))

    wanted = [
        replace(clause, left=spelt(clause.left), right=spelt(clause.right))
        if isinstance(clause, Near)
        else spelt(clause)
        for clause in query.wanted
    ]
    return Query(tuple(wanted), tuple(map(spelt, query.unwanted)))


def matches_query(query: Query, passage: Passage, alternatives: bool = False) -> list[Match]:
    """Where the query matches in the passage, in order; empty if it does not, or only begins in the words
    that follow. alternatives: also the matches with exactly one of the passage's readings applied; of several
    that match the same words the most probable."""
    texts = [word.text for word in passage.words]
    places: dict[tuple[int, int], Match] = {
        (match.first, match.last): match for match in _matches(query, texts)
    }
    likeliest = sorted(passage.readings, key=lambda reading: -(reading.confidence or 0.0))
    for reading in likeliest if alternatives else ():
        if not _speaks_of(query, reading):
            continue
        heard = reading.text.split(" ")
        read = texts[: reading.first] + heard + texts[reading.last + 1 :]
        after = reading.first + len(heard)
        longer = len(heard) - (reading.last - reading.first + 1)
        together = _matches(query, read)
        if not any(match.first < after and match.last >= reading.first for match in together):
            continue
        for match in together:
            touches = match.first < after and match.last >= reading.first
            first = min(match.first, reading.first) if match.first < after else match.first - longer
            last = match.last if match.last < reading.first else max(match.last - longer, reading.last)
            place = Match(first, last)
            if touches:
                place = Match(first, last, reading, join_words(read[match.first : match.last + 1]))
            places.setdefault((first, last), place)
    return [places[place] for place in sorted(places) if place[0] < passage.own]


def _matches(query: Query, texts: Sequence[str]) -> list[Match]:
    tokens = [(token, at) for at, text in enumerate(texts) for token in tokens_of(text)]
    if any(_places(term, tokens) for term in query.unwanted):
        return []
    matched: set[Match] = set()
    for clause in query.wanted:
        places = _near_places(clause, tokens) if isinstance(clause, Near) else _places(clause, tokens)
        if not places:
            return []
        matched |= {Match(tokens[first][1], tokens[last][1]) for first, last in places}
    return sorted(matched)


def _speaks_of(query: Query, reading: AlternativeReading) -> bool:
    """Whether the reading has a word of the query."""
    heard = tokens_of(reading.text)
    return any(
        any(token in way for way in term.ways) or (term.prefix and token.startswith(term.tokens[-1]))
        for clause in query.wanted
        for term in _terms(clause)
        for token in heard
    )


def _terms(clause: Term | Near) -> tuple[Term, ...]:
    return (clause.left, clause.right) if isinstance(clause, Near) else (clause,)


def _places(term: Term, tokens: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
    """The first and last token of each place."""
    places = []
    for way in term.ways:
        size = len(way)
        *first, last = way
        for at in range(len(tokens) - size + 1):
            end = tokens[at + size - 1][0]
            if (end.startswith(last) if term.prefix else end == last) and all(
                tokens[at + step][0] == token for step, token in enumerate(first)
            ):
                places.append((at, at + size - 1))
    return places


def _near_places(near: Near, tokens: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
    right = _places(near.right, tokens)
    return [
        (min(one[0], other[0]), max(one[1], other[1]))
        for one in _places(near.left, tokens)
        for other in right
        if one != other and max(one[0], other[0]) - min(one[1], other[1]) - 1 <= near.distance
    ]
