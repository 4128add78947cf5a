"""What somebody searches for by sound, as phones: from words, or from a spelling in phones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import Literal

from spool.errors import InvalidRequest
from spool.sounds.letters import spell_sounds
from spool.sounds.lexicon import Lexicon, Pronunciation
from spool.sounds.phones import NUMBERS, PHONES, phones_of_symbols, symbols_of_text

LEAST, MOST = 3, 40
WAYS = 2
"""Pronunciations of a query that are searched at most."""
Source = Literal["dictionary", "letters", "given"]
_STRESS = re.compile("[012\u02c8\u02cc.]")


@dataclass(frozen=True, slots=True)
class SoundQuery:
    """Ways to say what is searched for. source: whether all its words are in the dictionary, or some were
    read letter by letter, or the phones were given."""

    ways: tuple[Pronunciation, ...]
    source: Source

    @property
    def written(self) -> list[str]:
        """The ways as ARPABET."""
        return [" ".join(PHONES[phone] for phone in way) for way in self.ways]


def query_of_words(text: str, lexicon: Lexicon | None) -> SoundQuery:
    """How words are said. lexicon: None if there is none on this machine. Raises InvalidRequest."""
    source: Source = "dictionary"
    words: list[Sequence[Pronunciation]] = []
    for token in text.split():
        ways: Sequence[Pronunciation] = lexicon.pronounce(token) if lexicon is not None else ()
        if not ways:
            ways = spell_sounds(token)
            source = "letters" if ways else source
        if ways:
            words.append(ways)
    joined = (tuple(chain(*each)) for each in product(*words)) if words else iter(())
    return _checked(tuple(islice(dict.fromkeys(joined), WAYS)), source, text)


def query_of_phones(text: str) -> SoundQuery:
    """Phones as ARPABET (`OW K AA N K W OW`) or in the phonetic alphabet (`okɔnkwo`). Raises InvalidRequest,
    which names what it does not know."""
    parts = _STRESS.sub("", text).split()
    if all(part.isascii() and part.upper() == part for part in parts):
        unknown = [part for part in parts if part not in NUMBERS]
        if unknown:
            raise InvalidRequest(
                f"spelling: {unknown[0]} is not a phone; the phones are: {' '.join(PHONES)}, or use IPA."
            )
        return _checked((tuple(NUMBERS[part] for part in parts),), "given", text)
    symbols, unread = symbols_of_text("".join(parts).strip("/[]"))
    if unread:
        raise InvalidRequest(f"spelling: {unread!r} is not a symbol of English phones in IPA, or ARPABET.")
    return _checked((tuple(phones_of_symbols(symbols)),), "given", text)


def _checked(ways: tuple[Pronunciation, ...], source: Source, text: str) -> SoundQuery:
    if not ways or not all(ways):
        raise InvalidRequest(f"{text!r} has no sounds: a search by sound needs words, or phones.")
    if len(ways[0]) < LEAST:
        raise InvalidRequest(f"{text!r} has {len(ways[0])} sounds; a search by sound needs at least {LEAST}.")
    if len(ways[0]) > MOST:
        raise InvalidRequest(f"{text!r} has {len(ways[0])} sounds; a search by sound takes at most {MOST}.")
    return SoundQuery(ways, source)
