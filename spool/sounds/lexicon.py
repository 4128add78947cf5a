"""Pronunciations of English words: a dictionary in CMU's format, and what follows from it.

A word that is missing is looked up without a plural or possessive ending, in its parts around hyphens, as a
number or letter by letter; if all of that fails it has no pronunciation, and whoever asks has to do without.
Plain Python.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from spool.errors import ModelUnreadable
from spool.sounds.numbers import spell_number
from spool.sounds.phones import NUMBERS

Pronunciation = tuple[int, ...]
"""Numbers of `PHONES`."""
ALTERNATIVES = 4
"""Pronunciations of a word that are tried at most."""
DICTIONARY_BYTES_MAX = 64 << 20
LEAST_WORDS = 1000
BROKEN_SHARE = 0.2
_NUMBERED = re.compile(r"\(\d+\)$")
_APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'", "\uff07": "'", "`": "'"})
_SIGNS = {"&": " and ", "%": " percent ", "$": " dollars ", "+": " plus ", "=": " equals ", "@": " at "}
_PART = re.compile(r"[a-z']+|[0-9][0-9.,:]*(?:st|nd|rd|th|s)?")
_HARD = frozenset(NUMBERS[each] for each in ("P", "T", "K", "F", "TH"))
_HISSING = frozenset(NUMBERS[each] for each in ("S", "Z", "SH", "ZH", "CH", "JH"))


class Lexicon:
    """Words with their pronunciations, commonest first."""

    def __init__(self, entries: Mapping[str, Sequence[Pronunciation]]) -> None:
        self._entries = entries
        self.pronounce = lru_cache(maxsize=200_000)(self._pronounce)

    def _pronounce(self, token: str) -> tuple[Pronunciation, ...]:
        """Of a token as transcripts have it ("Don't", "1,200", "well-known,"): each way to say it, none if
        unknown or if it is only punctuation."""
        parts = self.parts(token)
        ways = [self._ways(part) for part in parts]
        if not ways or not all(ways):
            return ()
        joined = (tuple(itertools.chain(*way)) for way in itertools.product(*ways))
        return tuple(dict.fromkeys(itertools.islice(joined, ALTERNATIVES)))

    def parts(self, token: str) -> list[str]:
        """The words that a token is said as; empty for punctuation alone."""
        text = unicodedata.normalize("NFKC", token).translate(_APOSTROPHES).lower()
        dotted = text.strip("\"',;:!?()[]{}<>*_~-\u2013\u2014\u2026\u201c\u201d\u2018")
        whole = dotted.strip(".'")
        for known in (dotted, whole):
            if known in self._entries:
                return [known]
        for sign, word in _SIGNS.items():
            text = text.replace(sign, word)
        kept = "".join(each for each in unicodedata.normalize("NFD", text) if not unicodedata.combining(each))
        if any(unicodedata.category(each)[0] == "L" and not each.isascii() for each in kept):
            return [whole]
        words: list[str] = []
        for part in _PART.findall(kept):
            words += spell_number(part) if part[0].isdigit() else [part]
        return [word for word in (each.strip("'") for each in words) if word]

    def knows(self, token: str) -> bool:
        """Whether every word of the token is in the dictionary itself."""
        return all(part in self._entries for part in self.parts(token))

    def _ways(self, word: str) -> Sequence[Pronunciation]:
        found = self._entries.get(word)
        if found:
            return found
        for ending in ("'s", "s'", "s"):
            stem = word.removesuffix(ending)
            if stem != word and (own := self._entries.get(stem)):
                return [_with_s(each) for each in own]
        bare = word.replace("'", "")
        if bare != word and (own := self._entries.get(bare)):
            return own
        if 1 < len(word) <= 5 and not set(word) & set("aeiouy'"):
            letters = [self._entries.get(letter) or self._entries.get(f"{letter}.") for letter in word]
            if all(letters):
                return [tuple(itertools.chain(*(each[0] for each in letters if each)))]
        return ()


def _with_s(stem: Pronunciation) -> Pronunciation:
    """The stem with a plural's or possessive's ending."""
    if not stem:
        return stem
    if stem[-1] in _HISSING:
        return (*stem, NUMBERS["IH"], NUMBERS["Z"])
    return (*stem, NUMBERS["S" if stem[-1] in _HARD else "Z"])


def read_lexicon(path: Path) -> Lexicon:
    """Reads a dictionary: a word and its phones a line, other pronunciations as `word(2)`. Lines that are not
    so are passed over. Raises ModelUnreadable if there are too many of these, or too few words."""
    try:
        if path.stat().st_size > DICTIONARY_BYTES_MAX:
            raise ModelUnreadable(f"{path}: larger than {DICTIONARY_BYTES_MAX:,} bytes")
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as cause:
        raise ModelUnreadable(f"{path}: the dictionary cannot be read: {cause.strerror}") from cause
    entries, broken = parse_entries(lines)
    if len(entries) < LEAST_WORDS or broken > BROKEN_SHARE * (len(entries) + broken):
        raise ModelUnreadable(
            f"{path}: not a pronunciation dictionary: {len(entries)} words and {broken} lines that are none"
        )
    return Lexicon(entries)


def parse_entries(lines: Iterable[str]) -> tuple[dict[str, list[Pronunciation]], int]:
    """The words of a dictionary's lines, and how many lines are broken."""
    entries: dict[str, list[Pronunciation]] = {}
    broken = 0
    for line in lines:
        if not line.strip() or line.startswith((";;;", "#")):
            continue
        word, *phones = line.split()
        try:
            pronunciation = tuple(NUMBERS[phone.rstrip("012")] for phone in phones)
        except KeyError:
            broken += 1
            continue
        if not pronunciation:
            broken += 1
            continue
        entries.setdefault(_NUMBERED.sub("", word).lower(), []).append(pronunciation)
    return entries, broken
