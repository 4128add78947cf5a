"""The index of search by sound: which phones follow which, two seconds at a time.

A cell is `CELL` frames. A pair of phones is in a cell if the first one begins in it or in the second after it
and the other one begins up to `APART` frames later, each among what was likely there. So a word of up to a
second is whole in one cell, and a phone that was missed or put in costs some of its pairs only. A channel's
pairs are a matrix of bits, [PAIRS, width]: a row for each pair, a bit for each cell, first cell in the
highest bit. Plain numpy.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from spool.sounds.lexicon import Pronunciation
from spool.sounds.phones import PHONES, STEP

CELL = 100
SPAN = 150
APART = 10
LIKELY_STEPS = round(2.0 / STEP)
PAIRS = len(PHONES) ** 2
MOST_PAIRS = 16
"""Of all ways to say a query: each takes time."""
Bits = NDArray[np.uint8]
_PIECE = 8192
_RARE, _USUAL = 0.02, 0.08
"""Shares of all cells: a pair that is rarer counts three or two."""
_SAMPLE = 4096
"""Words of a row from which its share is estimated, to a fiftieth of itself; 10,000 hours have 280,000."""


def make_pairs(table: NDArray[np.uint8]) -> Bits:
    """The pairs of a channel's frames (`PhoneFrames.table`), uint8 [PAIRS, width]."""
    phones = len(PHONES)
    likely = table[:, :phones] <= LIKELY_STEPS
    begins = likely.copy()
    begins[1:] &= ~likely[:-1]
    cells = -(-len(table) // CELL)
    padded = np.zeros((cells * CELL + SPAN + APART + 1, phones), np.float32)
    padded[: len(table)] = begins
    follows = np.zeros_like(padded)
    for later in range(2, APART + 1):
        np.maximum(follows[:-later], padded[later:], out=follows[:-later])
    found = np.zeros((cells, phones, phones), np.bool_)
    for cell in range(cells):
        own = slice(cell * CELL, cell * CELL + SPAN)
        found[cell] = padded[own].T @ follows[own] > 0
    return np.packbits(found.reshape(cells, PAIRS), axis=0).T.copy()


def pairs_of_phones(phones: Pronunciation, most: int = MOST_PAIRS) -> list[int]:
    """The rows that a query reads: of neighbours, then of every second phone, at most `most`."""
    pairs = [
        first * len(PHONES) + second
        for apart in (1, 2)
        for first, second in zip(phones, phones[apart:], strict=False)
        if first != second
    ]
    return list(dict.fromkeys(pairs))[:most]


def best_cells(rows: Sequence[Bits], most: int, open_cells: Bits | None = None) -> NDArray[np.int64]:
    """The `most` cells with the most of these rows, the rarer ones counting more; each has one at least. Rows
    have one length, a multiple of eight bytes. open_cells: the only ones to look at."""
    if not rows or not len(rows[0]):
        return np.zeros(0, np.int64)
    whole = [row.view(np.uint64) for row in rows]
    weights = [_weight(row) for row in whole]
    found, least, room = _Words.of(0, _add_up([row[:0] for row in whole], weights), whole[0][:0]), 1, 4 * most
    # In pieces that stay in a core's cache, each of which leaves the few cells that may be among the best.
    for begin in range(0, len(whole[0]), _PIECE):
        piece = slice(begin, begin + _PIECE)
        sums = _add_up([row[piece] for row in whole], weights)
        cells = _at_least(sums, least)
        if open_cells is not None:
            cells &= open_cells.view(np.uint64)[piece]
        found = found.join(_Words.of(begin, sums, cells))
        if len(found.numbers) > room:
            least = max(_split(found, most)[0], 1)
            found = found.narrow(_at_least(found.sums, least))
            room = max(room, 2 * len(found.numbers))
    least, more, equal = _split(found, most)
    sure = _cells_of(found.numbers, more)
    if least == 0 or len(sure) >= most:
        return sure[:most]
    # Of those with this sum as many as there is room for, from everywhere.
    tied = _cells_of(found.numbers, equal)
    free = most - len(sure)
    return np.sort(np.append(sure, tied[np.linspace(0, len(tied) - 1, min(free, len(tied))).astype(np.intp)]))


class _Words(NamedTuple):
    """Words of 64 cells: their numbers, which of the cells are meant, and the sums of all, lowest bit
    first."""

    numbers: NDArray[np.int64]
    cells: NDArray[np.uint64]
    sums: NDArray[np.uint64]

    @classmethod
    def of(cls, begin: int, sums: Sequence[NDArray[np.uint64]], cells: NDArray[np.uint64]) -> Self:
        """Those of a piece that have one of these cells."""
        own = np.flatnonzero(cells)
        return cls(begin + own, cells[own], np.stack([each[own] for each in sums]))

    def join(self, other: Self) -> Self:
        """Those of both, in this order."""
        return type(self)(*(np.concatenate(both, axis=-1) for both in zip(self, other, strict=True)))

    def narrow(self, cells: NDArray[np.uint64]) -> Self:
        """Those of them that have one of these cells."""
        left = self.cells & cells
        own = np.flatnonzero(left)
        return type(self)(self.numbers[own], left[own], self.sums[:, own])


def _add_up(rows: Sequence[NDArray[np.uint64]], weights: Sequence[int]) -> list[NDArray[np.uint64]]:
    """The weighted sums of all cells at once, lowest bit first: three rows become one and their carry."""
    sums = []
    waiting = [
        [row for row, weight in zip(rows, weights, strict=True) if weight >> bit & 1] for bit in (0, 1)
    ]
    for bit in range(sum(weights).bit_length()):
        own = waiting[bit]
        carries: list[NDArray[np.uint64]] = []
        while len(own) > 1:
            first, second, *third = own[:3]
            total, carry = first ^ second, first & second
            for each in third:
                carry |= total & each
                total ^= each
            own = [*own[3:], total]
            carries.append(carry)
        sums += own or [np.zeros_like(rows[0])]
        waiting = [*waiting, []]
        waiting[bit + 1] += carries
    return sums


def _at_least(sums: Sequence[NDArray[np.uint64]] | NDArray[np.uint64], least: int) -> NDArray[np.uint64]:
    """The cells whose sum is at least so large; no sum is larger than `sums` can say."""
    cells = np.full_like(sums[0], np.iinfo(np.uint64).max)
    for bit, own in enumerate(sums):
        if least >> bit & 1:
            cells &= own
        else:
            cells |= own
    return cells


def _split(words: _Words, most: int) -> tuple[int, NDArray[np.uint64], NDArray[np.uint64]]:
    """The least sum that not too many cells exceed, the cells that do, and those that have it."""
    # From its highest bit on: `more` have a larger one, `equal` have this one so far.
    equal, more, least = words.cells, np.zeros_like(words.cells), 0
    for bit in range(len(words.sums) - 1, -1, -1):
        both = equal & words.sums[bit]
        if _count(more | both) > most:
            least |= 1 << bit
            equal = both
        else:
            more = more | both
            equal = equal ^ both
    return least, more, equal


def _count(row: NDArray[np.uint64]) -> int:
    """How many bits are set."""
    return int(np.bitwise_count(row).sum(dtype=np.int64))


def _weight(row: NDArray[np.uint64]) -> int:
    sample = row[:: max(len(row) // _SAMPLE, 1)]
    share = _count(sample) / (64 * len(sample))
    return 3 if share < _RARE else 2 if share < _USUAL else 1


def _cells_of(numbers: NDArray[np.int64], cells: NDArray[np.uint64]) -> NDArray[np.int64]:
    own = np.flatnonzero(cells)
    where, bit = np.nonzero(np.unpackbits(cells[own].view(np.uint8)).reshape(-1, 64))
    return np.asarray(numbers[own][where] * 64 + bit, np.int64)
