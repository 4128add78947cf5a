"""n-gram models of token sequences: interpolated modified Kneser-Ney smoothing, as KenLM's lmplz has it.

Chen and Goodman (An Empirical Study of Smoothing Techniques for Language Modeling, 1999, section 3) give the
discounts; Heafield et al. (Scalable Modified Kneser-Ney Language Model Estimation, 2013) the counts of
n-grams that begin a sentence and the uniform distribution below the unigrams. Every token of the vocabulary
has a probability, even if it is not in the text. `arpa` writes the file.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from worker.decode.fusion.arpa import BEGIN, END, Gram

Discounts = tuple[float, float, float]
"""Subtracted from the counts 1, 2, and 3 or more."""
FALLBACK: Discounts = (0.5, 1.0, 1.5)
"""KenLM's, for a text too small or too regular to estimate discounts from."""


@dataclass(frozen=True, slots=True)
class NGrams:
    """The probability of each n-gram's last token given the others, and the back-off weight of each context
    in the text."""

    order: int
    probabilities: Mapping[Gram, float]
    backoffs: Mapping[Gram, float]


def estimate(
    lines: Iterable[Sequence[int]], vocabulary: int, order: int, discounts: Discounts | None = None
) -> NGrams:
    """The model of `lines`, each the ids (0 to `vocabulary` - 1) of a sentence.

    The order is lower if no sentence is that long. Without `discounts`, those of each order are estimated
    from how many of its n-grams have counts of 1, 2, 3 and 4.
    """
    padded = [(BEGIN, *line, END) for line in lines]
    order = min(order, max(map(len, padded), default=1))
    counts = _adjust_counts(padded, order)
    probabilities: dict[Gram, float] = {}
    backoffs: dict[Gram, float] = {}
    for level in counts:
        taken = discounts or _discounts(level)
        total: dict[Gram, int] = defaultdict(int)
        left: dict[Gram, float] = defaultdict(float)
        for gram, count in level.items():
            total[gram[:-1]] += count
            left[gram[:-1]] += min(taken[min(count, 3) - 1], count)
        if level is counts[0]:
            _unigrams(level, vocabulary, taken, probabilities)
            continue
        for context, size in total.items():
            backoffs[context] = left[context] / size
        for gram, count in level.items():
            context = gram[:-1]
            seen = max(count - taken[min(count, 3) - 1], 0.0) / total[context]
            probabilities[gram] = seen + backoffs[context] * probabilities[gram[1:]]
    return NGrams(order, probabilities, backoffs)


def _adjust_counts(padded: Sequence[Gram], order: int) -> list[Counter[Gram]]:
    """The adjusted count of each n-gram, by n from 1: occurrences for the highest order and for n-grams that
    begin a sentence, else the number of distinct preceding tokens."""
    counts = [Counter[Gram]() for _ in range(order)]
    for line in padded:
        for n in range(2, min(order, len(line)) + 1):
            counts[n - 1][line[:n]] += 1  # nothing precedes these
        counts[-1].update(line[i : i + order] for i in range(1, len(line) - order + 1))
    for n in range(order - 1, 0, -1):
        counts[n - 1].update(gram[1:] for gram in counts[n])
    return counts


def _discounts(level: Counter[Gram]) -> Discounts:
    """Chen and Goodman, equation 26."""
    n = Counter(min(count, 5) for count in level.values())
    if not all(n[count] for count in (1, 2, 3, 4)):
        return FALLBACK
    y = n[1] / (n[1] + 2 * n[2])
    one, two, more = (count - (count + 1) * y * n[count + 1] / n[count] for count in (1, 2, 3))
    if not (0 < one <= 1 and 0 < two <= 2 and 0 < more <= 3):
        return FALLBACK
    return one, two, more


def _unigrams(level: Counter[Gram], vocabulary: int, taken: Discounts, into: dict[Gram, float]) -> None:
    """Set the unigrams, interpolated with the uniform distribution over the tokens and the sentence's end."""
    total = sum(level.values())
    left = sum(min(taken[min(count, 3) - 1], count) for count in level.values())
    for token in (*range(vocabulary), END):
        count = level[token,]
        seen = max(count - taken[min(count, 3) - 1], 0.0) if count else 0.0
        into[token,] = (seen + left / (vocabulary + 1)) / total
