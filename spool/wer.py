"""Word error rate: how many words a hypothesis has wrong against its reference. Pure.

WER = (substitutions + deletions + insertions) / words of the reference, summed over all utterances before the
division, so that a long recording weighs more than a short one. Words are compared after lower-casing and
removing punctuation other than apostrophes inside words.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'", "\uff07": "'"})


@dataclass(frozen=True)
class WordErrors:
    """Edits between hypothesis and reference, and the words of the reference."""

    edits: int
    words: int

    @property
    def rate(self) -> float:
        """Edits per reference word. Without reference words: 0 if nothing was said, else infinite."""
        if self.words:
            return self.edits / self.words
        return 0.0 if self.edits == 0 else float("inf")

    def __add__(self, other: "WordErrors") -> "WordErrors":
        return WordErrors(self.edits + other.edits, self.words + other.words)


def normal_words(text: str) -> list[str]:
    """The words of `text` as they are compared: lower case, letters, digits and inner apostrophes alone."""
    kept = "".join(
        char if char == "'" or unicodedata.category(char)[0] in "LNM" else " "
        for char in unicodedata.normalize("NFKC", text).translate(_APOSTROPHES).lower()
    )
    return [word for word in (token.strip("'") for token in kept.split()) if word]


def word_errors(reference: str, hypothesis: str) -> WordErrors:
    """The errors of one utterance."""
    expected, heard = normal_words(reference), normal_words(hypothesis)
    return WordErrors(edit_distance(expected, heard), len(expected))


def total_errors(errors: Iterable[WordErrors]) -> WordErrors:
    """The errors of many utterances."""
    return sum(errors, WordErrors(0, 0))


def edit_distance(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Levenshtein distance in words (Wagner and Fischer 1974), in memory of one row."""
    row = list(range(len(hypothesis) + 1))
    for index, expected in enumerate(reference, start=1):
        diagonal, row[0] = row[0], index
        for position, heard in enumerate(hypothesis, start=1):
            substituted = diagonal + (expected != heard)
            diagonal = row[position]
            row[position] = min(substituted, row[position] + 1, row[position - 1] + 1)
    return row[-1]
