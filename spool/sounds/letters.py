"""Sounds of words that no dictionary has, mostly names, by their letters: first as in many languages, then as
in English. Rough, which a search by likeness allows for.
"""

import unicodedata
from collections.abc import Mapping

from spool.sounds.lexicon import Pronunciation
from spool.sounds.phones import NUMBERS

_SHARED = """
tsch CH; sch SH; tch CH; cz CH; sz SH; sh SH; ch CH; ph F; th TH; gh G; kn N; wr R; wh W; ck K; qu K W;
dj JH; dg JH; ng NG; nk NG K; nx NG K S; tz T S; zh ZH; rh R; mb$ M; ps P S; ^ps S; ^x Z; x K S;
ce S EH; ci S IY; cy S IY; cc K; c K; b B; d D; f F; g G; h HH; j JH; k K; l L; m M; n N; p P; q K; r R;
s S; t T; v V; w W; z Z; y$ IY; ^y Y
"""
_WIDE = """
aa AA; ah AA; ai AY; ay AY; ei EY; ey EY; au AW; aw AO; ou UW; oo UW; oi OY; oy OY; ie IY; ee IY; ea IY;
eu OY; ow OW; oh OW; er$ ER; a AA; e EH; i IY; o OW; u UW; y IY; j JH
"""
_ENGLISH = """
tion SH AH N; sion ZH AH N; ough AO; augh AO; igh AY; ai EY; ay EY; ei EY; ey IY; au AO; aw AO; ou AW;
ow OW; oo UW; oi OY; oy OY; ie IY; ee IY; ea IY; eu Y UW; ew UW; oa OW; ar AA R; er ER; ir ER; or AO R;
ur ER; le$ AH L; e$; a AE; e EH; i IH; o AA; u AH; y IH; ge JH EH; gi JH IH
"""


def _read(text: str) -> dict[str, tuple[int, ...]]:
    rules: dict[str, tuple[int, ...]] = {}
    for rule in text.replace("\n", ";").split(";"):
        letters, _, phones = rule.strip().partition(" ")
        if letters:
            rules[letters] = tuple(NUMBERS[phone] for phone in phones.split())
    return rules


_WAYS = (_read(_SHARED) | _read(_WIDE), _read(_SHARED) | _read(_ENGLISH))
_LONGEST = max(len(letters) for way in _WAYS for letters in way) + 1
_OTHERS = str.maketrans({"ß": "ss", "ø": "o", "æ": "e", "œ": "e", "ł": "l", "đ": "d", "ð": "d", "þ": "t"})


def spell_sounds(word: str) -> list[Pronunciation]:
    """How the word may be said, the likeliest way first; empty if it has no letters that are known here."""
    plain = unicodedata.normalize("NFKD", word.casefold().translate(_OTHERS))
    letters = "".join(each for each in plain if "a" <= each <= "z")
    ways = [_say(letters, rules) for rules in _WAYS]
    return [way for way in dict.fromkeys(ways) if way]


def _say(letters: str, rules: Mapping[str, tuple[int, ...]]) -> Pronunciation:
    phones: list[int] = []
    marked = f"^{letters}$"
    at = 1
    while at < len(marked) - 1:
        for size in range(min(_LONGEST, len(marked) - at), 0, -1):
            piece = marked[at : at + size]
            found = rules.get("^" + piece) if at == 1 else None
            found = rules.get(piece) if found is None else found
            if found is not None:
                phones += [phone for phone in found if not phones or phone != phones[-1] or len(found) > 1]
                at += len(piece.rstrip("$"))
                break
        else:
            at += 1
    return tuple(phones)
