"""How many passages to listen to, and the word error rate that the checked ones show.

Pure. A sample of passages is drawn at random without replacement. Passages differ in length, so the rate is a
ratio of two sums over it: R = Σe/Σn, with e errors and n words of the reference in each passage. Its variance
and the correction for a finite population are those of the ratio estimator in Cochran, *Sampling Techniques*,
3rd edition (1977), section 6.4, equation 6.13; the size of a sample is his 4.2 with that variance.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, pi, sqrt, tan

from spool.domain.archive.edits import Edit
from spool.domain.transcript import Word
from spool.wer import WordErrors, edit_distance, normal_words

Z = 1.959964
"""The normal distribution's 97.5 % quantile."""
FEWEST = 30
"""The fewest passages of a sample: below it the sum is not close enough to a normal distribution."""


@dataclass(frozen=True, slots=True)
class Population:
    """Passages to draw from, by sums over them: their number, `words` n, `expected` errors e that the model's
    confidences predict, and squares. `within` is Σ e(n-e)/n, the variance left within passages."""

    passages: int
    words: float
    expected: float
    words_squared: float
    expected_squared: float
    expected_words: float
    within: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The word error rate, and its 95 % interval; None if too few passages were checked for one."""

    checked: int
    words: int
    errors: int
    rate: float | None
    low: float | None
    high: float | None


def sample_size(population: Population, margin: float) -> int:
    """How many passages are needed to know the rate within ± `margin` (0.02: two points) with 95 %
    confidence, if errors are as frequent as the model expects: at least 30, or all if there are fewer."""
    count = population.passages
    if count <= FEWEST or not population.words:
        return count
    rate = population.expected / population.words
    between = (
        population.expected_squared
        - 2 * rate * population.expected_words
        + rate * rate * population.words_squared
    )
    variance = (max(0.0, between) + population.within) / (count - 1)
    infinite = (Z / (margin * population.words / count)) ** 2 * variance
    return min(count, max(FEWEST, ceil(infinite / (1 + infinite / count))))


def estimate(found: Sequence[WordErrors], population: int) -> Estimate:
    """The rate of a population of this many passages from those that were checked, one `WordErrors` each.

    If none has an error, no more than 3/m of the passages have any with 95 % confidence (Hanley and
    Lippman-Hand, 1983), which is then the upper end.
    """
    size = len(found)
    errors, words = sum(each.edits for each in found), sum(each.words for each in found)
    if not words:
        return Estimate(size, words, errors, None, None, None)
    rate = errors / words
    if size < 2:
        return Estimate(size, words, errors, rate, None, None)
    if size >= population:
        return Estimate(size, words, errors, rate, rate, rate)
    if not errors:
        return Estimate(size, words, errors, rate, 0.0, min(1.0, 3 / size))
    spread = sum((each.edits - rate * each.words) ** 2 for each in found) / (size - 1)
    deviation = sqrt((1 - size / population) * spread / size) / (words / size)
    reach = t_quantile(size - 1) * deviation
    return Estimate(size, words, errors, rate, max(0.0, rate - reach), rate + reach)


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's distribution: exact for one and two degrees of freedom, else the
    expansion 26.7.5 of Abramowitz and Stegun, *Handbook of Mathematical Functions*."""
    if freedom == 1:
        return tan(pi * 0.475)
    if freedom == 2:
        return 0.95 * sqrt(2 / (1 - 0.95 * 0.95))
    z = Z
    terms: tuple[float, ...] = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(freedom**power) for power, term in enumerate(terms, start=1))


def passage_errors(words: Sequence[Word], edits: Iterable[Edit], first: int, last: int) -> WordErrors:
    """The errors of the recognised words `first` to `last` of `words`, by the standing edits. An edit counts
    where it begins."""
    wrong = expected = 0
    corrected: set[int] = set()
    for edit in edits:
        if edit.text is None:
            continue
        corrected.update(range(max(first, edit.first_word), min(last, edit.last_word) + 1))
        if first <= edit.first_word <= last:
            heard = normal_words(" ".join(word.text for word in words[edit.first_word : edit.last_word + 1]))
            reference = normal_words(edit.text)
            wrong += edit_distance(reference, heard)
            expected += len(reference)
    kept = (words[at].text for at in range(first, last + 1) if at not in corrected)
    return WordErrors(wrong, expected + sum(len(normal_words(text)) for text in kept))
