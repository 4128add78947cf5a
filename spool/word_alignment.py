"""Which words of two texts stand opposite one another."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def align_words(reference: Sequence[str], hypothesis: Sequence[str]) -> list[tuple[int, int]]:
    """Indices of the words that an alignment of fewest edits puts opposite one another, whether they are the
    same or substituted; words that are in no pair were deleted or inserted.

    Wagner and Fischer 1974, in memory of a few rows by the division of Hirschberg 1975; the time grows with
    the product of the lengths.
    """
    ids: dict[str, int] = {}
    one = np.array([ids.setdefault(word, len(ids)) for word in reference], np.int32)
    other = np.array([ids.setdefault(word, len(ids)) for word in hypothesis], np.int32)
    return list(_pairs(one, other, 0, 0))


_SMALL = 1 << 18
"""Cells of a table that is kept in memory."""


def _pairs(
    one: NDArray[np.int32], other: NDArray[np.int32], row: int, column: int
) -> Iterator[tuple[int, int]]:
    shorter = min(len(one), len(other))
    differing = np.flatnonzero(one[:shorter] != other[:shorter])
    same = int(differing[0]) if differing.size else shorter
    yield from ((row + at, column + at) for at in range(same))
    one, other, row, column = one[same:], other[same:], row + same, column + same
    if not len(one) or not len(other):
        return
    if len(one) == 1 or len(one) * len(other) <= _SMALL:
        yield from ((row + at, column + to) for at, to in _trace_back(one, other))
        return
    middle = len(one) // 2
    before = _last_row(one[:middle], other)
    after = _last_row(one[middle:][::-1], other[::-1])[::-1]
    cut = int(np.argmin(before + after))
    yield from _pairs(one[:middle], other[:cut], row, column)
    yield from _pairs(one[middle:], other[cut:], row + middle, column + cut)


def _last_row(one: NDArray[np.int32], other: NDArray[np.int32]) -> NDArray[np.int32]:
    """The edits between all of `one` and each beginning of `other`."""
    row = np.arange(len(other) + 1, dtype=np.int32)
    for word in one:
        row = _next_row(row, word, other)
    return row


def _next_row(row: NDArray[np.int32], word: np.int32, other: NDArray[np.int32]) -> NDArray[np.int32]:
    ramp = np.arange(len(row), dtype=np.int32)
    best = row + 1
    np.minimum(best[1:], row[:-1] + (other != word), out=best[1:])
    following: NDArray[np.int32] = np.minimum.accumulate(best - ramp) + ramp
    return following


def _trace_back(one: NDArray[np.int32], other: NDArray[np.int32]) -> list[tuple[int, int]]:
    rows = [np.arange(len(other) + 1, dtype=np.int32)]
    for word in one:
        rows.append(_next_row(rows[-1], word, other))
    pairs = []
    at, to = len(one), len(other)
    while at and to:
        if rows[at][to] == rows[at - 1][to - 1] + (one[at - 1] != other[to - 1]):
            at, to = at - 1, to - 1
            pairs.append((at, to))
        elif rows[at][to] == rows[at - 1][to] + 1:
            at -= 1
        else:
            to -= 1
    return pairs[::-1]
