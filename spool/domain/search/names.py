"""Names that corrections wrote in place of what was recognised, as phrases worth boosting. Pure.

A name is a run of at most five words that an edit put in place of others, each with a capital first letter or
in a script without cases.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from spool.domain.search.phrases import LONGEST_PHRASE
from spool.wer import normal_words

MOST_WORDS = 5
_ABBREVIATION = 4
"""The characters after which a full stop does not end a sentence: Dr., Mrs."""
_EDGES = re.compile(r"^\W+|\W+$")


class NameChange(NamedTuple):
    """A name, and the words that it replaced; none where other words were replaced together with them."""

    name: str
    heard: tuple[str, ...]


def find_names(heard: Sequence[str], text: str | None, before: str | None = None) -> list[str]:
    """The names in `text` that replace words of `heard`, as `find_name_changes` does, each once."""
    return list(dict.fromkeys(change.name for change in find_name_changes(heard, text, before)))


def find_name_changes(
    heard: Sequence[str], text: str | None, before: str | None = None
) -> Iterator[NameChange]:
    """The names in `text` that replace words of `heard`, in order. before: the preceding word, None at the
    beginning. A capital at the start of a sentence makes no name if the recognised word had one too."""
    tokens = (text or "").split()
    keys = [_key(word) for word in heard], [_key(token) for token in tokens]
    for kind, i, j, m, n in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if kind != "replace":
            continue
        for first, last in _runs(tokens, m, n):
            previous = tokens[first - 1] if first else before
            begins = first == m and (previous is None or _ends_sentence(previous))
            if last - first == 1 and begins and _first_letter(heard[i]).isupper():
                continue
            name = _EDGES.sub("", " ".join(tokens[first:last]))
            if last - first <= MOST_WORDS and len(name) <= LONGEST_PHRASE:
                yield NameChange(name, tuple(heard[i:j]) if (first, last) == (m, n) else ())


def _runs(tokens: Sequence[str], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The longest runs of capitalised words between the two indices; punctuation after a word ends one."""
    first = start
    for at in range(start, stop):
        if not _is_capitalised(tokens[at]):
            if first < at:
                yield first, at
            first = at + 1
        elif _ends_clause(tokens[at]):
            yield first, at + 1
            first = at + 1
    if first < stop:
        yield first, stop


def _is_capitalised(token: str) -> bool:
    letter = _first_letter(token)
    return bool(letter) and not letter.islower()


def _first_letter(token: str) -> str:
    return next((char for char in token if char.isalpha()), "")


def _ends_clause(token: str) -> bool:
    abbreviated = token.endswith(".") and len(token) <= _ABBREVIATION
    return unicodedata.category(token[-1])[0] == "P" and not abbreviated


def _ends_sentence(token: str) -> bool:
    return _ends_clause(token) and unicodedata.normalize("NFKC", token).endswith((".", "!", "?", "\u3002"))


def _key(token: str) -> str:
    return " ".join(normal_words(token)) or token
