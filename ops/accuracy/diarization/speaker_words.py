"""Words and their speakers, measured: the share of words with a wrong speaker, and word errors by speaker.

WDER (El Shafey et al. 2019, "Joint speech recognition and speaker diarization via sequence transduction"): of
the words that align with a reference word, correct or substituted, the share whose speaker is wrong. cpWER
(Watanabe et al. 2020, CHiME-6): each speaker's words concatenated, and the word error rate under the matching
of speakers that has the fewest errors.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from ops.accuracy.diarization.der import best_match
from spool.wer import WordErrors, edit_distance

Spoken = Sequence[tuple[str, Hashable]]
"""Words in order, normalised, each with its speaker."""


def word_diarization_error(reference: Spoken, hypothesis: Spoken) -> tuple[int, int]:
    """Aligned words with a wrong speaker, and aligned words."""
    pairs = aligned([word for word, _ in reference], [word for word, _ in hypothesis])
    if not pairs:
        return 0, 0
    true = {name: at for at, name in enumerate(dict.fromkeys(name for _, name in reference))}
    guess = {name: at for at, name in enumerate(dict.fromkeys(name for _, name in hypothesis))}
    counts = np.zeros((len(true), len(guess)))
    for one, other in pairs:
        counts[true[reference[one][1]], guess[hypothesis[other][1]]] += 1
    return len(pairs) - round(best_match(counts)), len(pairs)


def concatenated_word_errors(reference: Spoken, hypothesis: Spoken) -> WordErrors:
    """Word errors with each speaker's words concatenated, speakers matched so that they are fewest."""
    true, guess = _by_speaker(reference), _by_speaker(hypothesis)
    size = max(len(true), len(guess))
    true, guess = [*true, *[[]] * (size - len(true))], [*guess, *[[]] * (size - len(guess))]
    costs = np.array([[edit_distance(one, other) for other in guess] for one in true], float)
    worst = costs.max(initial=0) + 1
    edits = round(size * worst - best_match(worst - costs))
    return WordErrors(edits, len(reference))


def aligned(reference: Sequence[str], hypothesis: Sequence[str]) -> list[tuple[int, int]]:
    """Indices of the words that an alignment of fewest edits (Wagner and Fischer 1974) puts opposite one
    another."""
    rows, columns = len(reference), len(hypothesis)
    costs: NDArray[np.int64] = np.zeros((rows + 1, columns + 1), np.int64)
    costs[:, 0], costs[0] = np.arange(rows + 1), np.arange(columns + 1)
    for row in range(1, rows + 1):
        for column in range(1, columns + 1):
            substituted = costs[row - 1, column - 1] + (reference[row - 1] != hypothesis[column - 1])
            costs[row, column] = min(substituted, costs[row - 1, column] + 1, costs[row, column - 1] + 1)
    pairs = []
    row, column = rows, columns
    while row and column:
        differ = reference[row - 1] != hypothesis[column - 1]
        if costs[row, column] == costs[row - 1, column - 1] + differ:
            row, column = row - 1, column - 1
            pairs.append((row, column))
        elif costs[row, column] == costs[row - 1, column] + 1:
            row -= 1
        else:
            column -= 1
    return pairs[::-1]


def _by_speaker(spoken: Spoken) -> list[list[str]]:
    texts: dict[Hashable, list[str]] = {}
    for word, name in spoken:
        texts.setdefault(name, []).append(word)
    return list(texts.values())
