"""From a phrase as people write it to tokens that a model can emit.

Models differ in whether they write capitals, accents, digits and punctuation. A phrase that a tokenizer
cannot spell is simplified step by step: other marks, no marks, lower or upper case, no accents. A phrase that
cannot be spelled even then boosts nothing, and never fails a recording.
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
"""The most phrases that a warning names."""


class Encoder(Protocol):
    """What spelling needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Raises InvalidRequest where it cannot be written."""


@runtime_checkable
class WordEncoder(Protocol):
    """A tokenizer whose tokens include the space before a word, so that a text is spelled differently at the
    start and after other words."""

    def encode_words(self, text: str) -> list[int]:
        """The ids of words that follow other words."""


def spell(tokenizer: Encoder, phrase: str) -> list[int] | None:
    """The tokens of the phrase, or of the closest form that `tokenizer` can spell; None if there is none."""
    encode = tokenizer.encode_words if isinstance(tokenizer, WordEncoder) else tokenizer.encode
    for form in dict.fromkeys(_forms(phrase)):
        try:
            return encode(form)
        except InvalidRequest:
            continue
    return None


def _forms(phrase: str) -> Iterator[str]:
    """The phrase and simpler forms of it, closest first."""
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


def warn_of_unspelled(phrases: list[str]) -> str:
    """A job's warning about phrases that boost nothing."""
    named = ", ".join(repr(phrase) for phrase in phrases[:SHOWN])
    more = f" and {len(phrases) - SHOWN} more" if len(phrases) > SHOWN else ""
    return f"boost: the model has no tokens for {named}{more}; skipped"
