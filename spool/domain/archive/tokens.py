"""Turns words into the tokens of the index, and into keys of their sound.

Text in the index and text in a query go through the same functions, so both databases find the same.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

from spool.domain.spacing import CLUSTERED, WIDE

LONGEST = 64
"""The most characters of a token."""
SOUNDING = 4
"""A word shorter than this has no sound key: too many others would share it."""

_MARKS = re.compile("[\u0300-\u036f]")
_APOSTROPHES = re.compile("['\u2019\u02bc\uff07]")
# Words of these scripts have no spaces between them: each character is a token of its own.
_UNSPACED = WIDE + CLUSTERED
_PIECES = re.compile(f"(?![\\W_])[{_UNSPACED}]|[^\\W_{_UNSPACED}]+")
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "\u0131": "i"}
)

_CLUSTERS = re.compile("tsch|tch|sch|sh|ch|cz|ph|ck|qu|gh|th|tz|ts|x")
_SOUNDS = {"ph": "f", "ck": "k", "qu": "k", "gh": "k", "th": "t", "tz": "s", "ts": "s", "x": "ks"}
_CLASSES = str.maketrans("cqgdbvwz", "kkktpffs", "aeiouyjh")
_REPEATED = re.compile(r"(.)\1+")


@lru_cache(maxsize=1 << 16)
def tokens_of(text: str) -> tuple[str, ...]:
    """The tokens of a word or a text: lower case, without accents, apostrophes and punctuation."""
    plain = _MARKS.sub("", unicodedata.normalize("NFKD", _APOSTROPHES.sub("", text))).casefold()
    plain = unicodedata.normalize("NFC", plain.translate(_LETTERS))
    return tuple(piece[:LONGEST] for piece in _PIECES.findall(plain))


def pairs_of(tokens: Sequence[str]) -> list[int]:
    """Two signed bytes for each two adjacent tokens, sorted: equal for equal pairs; of other pairs one in
    65,536 collides."""
    return sorted({(crc32(f"{one} {other}".encode()) & 0xFFFF) - 0x8000 for one, other in pairwise(tokens)})


@lru_cache(maxsize=1 << 16)
def sound_of(token: str) -> str | None:
    """The consonants of a token, with similar ones merged (`kowalski` and `cowalsky` are both `kflsk`); a
    vowel counts only at the beginning. None if the result is too short to search by."""
    if len(token) < SOUNDING or not token.isalpha():
        return None
    vowel = "a" if token[0] in "aeiouyj" else ""
    consonants = _CLUSTERS.sub(lambda match: _SOUNDS.get(match[0], "\x00"), token)
    key = _REPEATED.sub(r"\1", consonants.translate(_CLASSES)).replace("\x00", "x")
    key = vowel + key
    return key if len(key) >= 2 else None


def sounds_near(key: str) -> list[str]:
    """The key and, if it is long enough, every key that differs from it in one sound."""
    if len(key) < SOUNDING:
        return [key]
    near = {key}
    for at in range(len(key) + 1):
        before, after = key[:at], key[at:]
        near |= {before + sound + after for sound in "fklmnprstx"}
        near |= {before + sound + after[1:] for sound in "fklmnprstx"} if after else set()
        near |= {before + after[1:]}
    return [key, *sorted(near - {key})]
