"""The lists by which disfluencies are found, by language.

Options name the languages, so this imports nothing that a client does without.
"""

import re
from typing import NamedTuple


class LanguageLists(NamedTuple):
    """single: words that never stand twice in a row in a sentence: no preposition that may end one, no
    pronoun that is both subject and object."""

    fillers: re.Pattern[str]
    single: frozenset[str]


def _language(fillers: str, single: str) -> LanguageLists:
    return LanguageLists(re.compile(fillers), frozenset(single.split()))


DISFLUENCIES = {
    "de": _language(
        "ä+h+m*|ö+h+m*|e+hm+|h+m+", "ein eine einen einem einer ich wir und oder aber im zum zur"
    ),
    "en": _language(
        "u+m+|u+h+m*|er|erm+|h+m+|mmm+", "the an i we they my your our their and or but if it's i'm"
    ),
    "es": _language("eh?m+|h+m+|mmm+", "el los las un unos unas yo mi y o pero de del al con"),
    "fr": _language("eu+h+m*|heu+|h+m+|mmm+", "le les un une des je il et ou mais de du au aux dans pour"),
    "it": _language("e+hm+|h+m+|mmm+", "il un una io e o ma di del della al con per"),
    "nl": _language("e+u*h+m*|u+h+m*|h+m+|mmm+", "de een ik wij mijn en maar"),
}
"""By language code."""
VERBATIM_LANGUAGES = tuple(DISFLUENCIES)
