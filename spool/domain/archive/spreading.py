"""A name that somebody corrected, in the other places where it was written otherwise. Pure."""

import re
from collections.abc import Sequence
from typing import Literal

from spool.wer import normal_words

FoundBy = Literal["words", "alternative", "spelling", "sound"]
"""The same wrong words; the name among what else was recognised; a word of similar letters; the sound."""
_BEFORE = re.compile(r"^[^\w\s]*")
_AFTER = re.compile(r"(?:['\u2019]s)?[^\w\s]*$", re.IGNORECASE)


def put_name(written: str, name: str) -> str:
    """The name in place of what is written, with the punctuation and the 's around that."""
    before, after = _BEFORE.findall(written)[0], _AFTER.findall(written)[0]
    if name.endswith(("'s", "\u2019s")):
        after = after.removeprefix("'s").removeprefix("\u2019s")
    return f"{before}{name}{after}"


def is_name_at(words: Sequence[str], first: int, last: int, name: str) -> bool:
    """Whether any of the words from `first` to `last` belongs to the name already."""
    wanted = [normal_words(part) for part in name.split()]
    ways = [normal_words(word) for word in words], [normal_words(_AFTER.sub("", word)) for word in words]
    size = len(wanted)
    return any(
        way[at : at + size] == wanted
        for at in range(max(0, first - size + 1), min(last + 1, len(words) - size + 1))
        for way in ways
    )
