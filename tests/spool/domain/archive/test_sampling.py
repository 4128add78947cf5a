"""The size of samples, and the error rate with its interval, against exact values and by simulation."""

from datetime import UTC, datetime

import numpy as np
import pytest

from spool.domain import Edit, Population, Word, estimate, passage_errors, sample_size, t_quantile
from spool.wer import WordErrors


@pytest.mark.parametrize(
    ("freedom", "value"),
    [(1, 12.7062), (2, 4.30265), (5, 2.57058), (10, 2.22814), (29, 2.04523), (1000, 1.96234)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, value: float) -> None:
    assert t_quantile(freedom) == pytest.approx(value, abs=3e-4)


def test_the_interval_is_cochrans() -> None:
    found = estimate([WordErrors(1, 10), WordErrors(0, 20), WordErrors(4, 30)], population=12)
    # R = 5/60; residuals 1/6, -5/3, 3/2; n̄ = 20; f = 1/4
    deviation = (0.75 * (1 / 36 + 25 / 9 + 9 / 4) / 2 / 3) ** 0.5 / 20
    assert found.rate == pytest.approx(5 / 60)
    assert found.high == pytest.approx(5 / 60 + 4.30265 * deviation, rel=1e-5)
    assert found.low == 0.0


def test_a_few_passages_none_and_all_of_them() -> None:
    assert estimate([], 100).rate is None
    assert estimate([WordErrors(0, 0)], 100).rate is None
    one = estimate([WordErrors(1, 4)], 100)
    assert (one.rate, one.low, one.high) == (0.25, None, None)
    right = estimate([WordErrors(0, 30)] * 60, 1000)
    assert (right.rate, right.low, right.high) == (0.0, 0.0, 0.05)
    everything = estimate([WordErrors(1, 10), WordErrors(0, 10)], 2)
    assert (everything.low, everything.high) == (0.05, 0.05)


def test_a_sample_of_the_size_given_is_within_its_margin_and_its_interval_holds() -> None:
    random = np.random.default_rng(3)
    words = random.integers(5, 41, 4000)
    chance = random.beta(1.5, 12, 4000)
    wrong = random.binomial(words, chance)
    e = words * chance
    sums = (words.sum(), e.sum(), (words**2).sum(), (e**2).sum(), (e * words).sum(), (e * (1 - chance)).sum())
    margin = 0.02
    size = sample_size(Population(4000, *map(float, sums)), margin)
    assert 30 < size < 400
    rate = wrong.sum() / words.sum()
    held = near = 0
    for _ in range(400):
        chosen = random.choice(4000, size, replace=False)
        found = estimate([WordErrors(int(wrong[at]), int(words[at])) for at in chosen], 4000)
        assert found.rate is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= rate <= found.high
        near += abs(found.rate - rate) <= margin
    assert held > 0.91 * 400
    assert near > 0.91 * 400


def test_sizes_at_the_ends() -> None:
    assert sample_size(Population(0, 0, 0, 0, 0, 0, 0), 0.02) == 0
    assert sample_size(Population(12, 120, 12, 1200, 12, 120, 10), 0.02) == 12
    assert sample_size(Population(1000, 10_000, 0, 100_000, 0, 0, 0), 0.02) == 30


def test_the_errors_of_a_passage_are_those_of_the_edits_that_begin_in_it() -> None:
    texts = ("a", "b,", "c", "d", "e", "f")
    words = [Word(text=text, start=at, end=at + 1, confidence=1) for at, text in enumerate(texts)]

    def edit(first: int, last: int, text: str | None) -> Edit:
        return Edit(1, first, last, text, None, "Bo", datetime(2026, 1, 1, tzinfo=UTC))

    assert passage_errors(words, [], 0, 2) == WordErrors(0, 3)
    assert passage_errors(words, [edit(1, 1, "B"), edit(2, 2, None)], 0, 2) == WordErrors(0, 3)
    crossing = [edit(2, 3, "x y z")]
    assert passage_errors(words, crossing, 0, 2) == WordErrors(3, 5)
    assert passage_errors(words, crossing, 3, 5) == WordErrors(0, 2)
    assert passage_errors(words, [edit(0, 2, "")], 0, 2) == WordErrors(3, 0)
