"""What a person searches for, and where in a passage it is.

    reel forty-two          both, in one passage (a phrase where a word has several tokens)
    "keep the light"        the words one after the other
    light*                  words that begin so; the last word of a phrase may, too
    kowalski~               words that sound like it
    fog NEAR/3 horn         at most so many words apart (5 without a number), in either order
    -storm                  no such word in the passage

The databases answer which passages may match; `matches` says where the words are, by the same rules.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from spool.domain.archive.passages import FOLLOWING, Passage
from spool.domain.archive.tokens import sound_of, tokens_of
from spool.errors import InvalidRequest

MOST_TERMS = 20
NEAR = 5
LEAST_PREFIX = 3

_PARTS = re.compile(r'-?"[^"]*"[*~]?|\S+')
_NEAR = re.compile(r"NEAR(?:/(\d{1,2}))?")


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase. `prefix`: its last token is the beginning of a word. `sound`: the key of a word that
    is sought by how it sounds, of which `spellings` are those that the archive has."""

    tokens: tuple[str, ...]
    prefix: bool = False
    sound: str | None = None
    spellings: tuple[str, ...] = ()


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
    """Words of a passage, `last` included."""

    first: int
    last: int


def parse_query(text: str) -> Query:
    """Read what a person wrote. Raises InvalidRequest, which says what is wrong."""
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
        at += 1
        if part.startswith("-") and tokens_of(part):
            unwanted.append(_term(part[1:]))
        elif _NEAR.fullmatch(part):
            raise InvalidRequest(f"{part} needs a word on both sides.")
        elif tokens_of(part):
            wanted.append(_term(part))
    if not wanted:
        raise InvalidRequest("Nothing to search for: write at least one word that is not excluded.")
    return Query(tuple(wanted), tuple(unwanted))


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
    return Term(tokens, prefix)


def fuzzy_terms(query: Query) -> list[Term]:
    """The terms that are sought by their sound."""
    terms = [term for clause in query.wanted for term in _terms(clause)] + list(query.unwanted)
    return [term for term in terms if term.sound]


def with_spellings(query: Query, spellings: dict[Term, tuple[str, ...]]) -> Query:
    """The same with the spellings that the archive has."""

    def spelt(term: Term) -> Term:
        return replace(term, spellings=spellings.get(term, ()))

    wanted = [
        replace(clause, left=spelt(clause.left), right=spelt(clause.right))
        if isinstance(clause, Near)
        else spelt(clause)
        for clause in query.wanted
    ]
    return Query(tuple(wanted), tuple(map(spelt, query.unwanted)))


def matches(query: Query, passage: Passage) -> list[Match]:
    """Where the query is in the passage, in order; empty where it is not, or where it begins in the words
    that follow."""
    tokens = [(token, at) for at, word in enumerate(passage.words) for token in tokens_of(word.text)]
    if any(_places(term, tokens) for term in query.unwanted):
        return []
    found: set[Match] = set()
    for clause in query.wanted:
        places = _near_places(clause, tokens) if isinstance(clause, Near) else _places(clause, tokens)
        if not places:
            return []
        found |= {Match(tokens[first][1], tokens[last][1]) for first, last in places}
    return sorted(match for match in found if match.first < passage.own)


def _terms(clause: Term | Near) -> tuple[Term, ...]:
    return (clause.left, clause.right) if isinstance(clause, Near) else (clause,)


def _places(term: Term, tokens: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
    """The first and last token of each place."""
    if term.sound:
        return [(at, at) for at, (token, _) in enumerate(tokens) if token in term.spellings]
    size = len(term.tokens)
    *first, last = term.tokens
    places = []
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
