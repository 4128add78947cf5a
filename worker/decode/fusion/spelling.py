"""From a phrase as people write it to the tokens that a model can emit.

Models differ in what they write: capitals or none, accents or none, no digits, no marks. A phrase that a
tokenizer cannot spell as it stands is folded, a step at a time, to what it can: other marks, no marks, lower
or upper case, no accents. What cannot be spelled even then boosts nothing, and never fails a recording.
"""

import unicodedata
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from spool.errors import InvalidRequest

_PLAIN = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": "-",
        "\u2026": "...",
    }
    | {
        "\u00df": "ss",
        "\u00e6": "ae",
        "\u0153": "oe",
        "\u00f8": "o",
        "\u0142": "l",
        "\u00c6": "AE",
        "\u0152": "OE",
    }
    | {"\u00d8": "O", "\u0141": "L", "\u0111": "d", "\u0110": "D", "\u00f0": "d", "\u00fe": "th"}
)
_KEPT_MARKS = "'"
SHOWN = 20
"""Phrases that a warning names; it counts all."""


class Encoder(Protocol):
    """What spelling needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Raises InvalidRequest where it cannot be written."""


@runtime_checkable
class WordEncoder(Protocol):
    """A tokenizer whose tokens hold the space before a word, so that a text and the same words behind others
    are spelled in different ones."""

    def encode_words(self, text: str) -> list[int]:
        """The ids of words that stand behind others, as they do in all of a text but its first letters."""


def spell(tokenizer: Encoder, phrase: str) -> list[int] | None:
    """The tokens of the phrase, or of the closest form of it that `tokenizer` can spell; None where there is
    none."""
    encode = tokenizer.encode_words if isinstance(tokenizer, WordEncoder) else tokenizer.encode
    for form in dict.fromkeys(_forms(phrase)):
        try:
            return encode(form)
        except InvalidRequest:
            continue
    return None


def _forms(phrase: str) -> Iterator[str]:
    """The phrase, and what comes closest to it, closest first."""
    for form in (phrase, phrase.translate(_PLAIN), _without_marks(phrase), _without_accents(phrase)):
        for cased in (form, form.lower(), form.upper()):
            if cased.strip():
                yield cased


def _without_marks(text: str) -> str:
    spaced = "".join(
        char if char.isalnum() or unicodedata.category(char)[0] == "M" or char in _KEPT_MARKS else " "
        for char in text.translate(_PLAIN)
    )
    return " ".join(spaced.split())


def _without_accents(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text).translate(_PLAIN)
    return _without_marks("".join(char for char in parts if not unicodedata.combining(char)))


def unspelled_warning(phrases: list[str]) -> str:
    """What a job says of phrases that boost nothing."""
    named = ", ".join(repr(phrase) for phrase in phrases[:SHOWN])
    more = f" and {len(phrases) - SHOWN} more" if len(phrases) > SHOWN else ""
    return f"boost: the model has no tokens for {named}{more}; skipped"
