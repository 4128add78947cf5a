"""The index of search by sound: which phones follow which, two seconds at a time.

A cell is `CELL` frames. A pair of phones is in a cell if the first one begins in it or in the second after it
and the other one begins up to `APART` frames later, each among what was likely there. So a word of up to a
second is whole in one cell, and a phone that was missed or put in costs some of its pairs only. A channel's
pairs are a matrix of bits, [PAIRS, width]: a row for each pair, a bit for each cell, first cell in the
highest bit. Plain numpy.
"""

from collections.abc import Sequence

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
    sums = _add_up([row.view(np.uint64) for row in rows])
    equal = np.full_like(sums[0], np.iinfo(np.uint64).max)
    if open_cells is not None:
        equal &= open_cells.view(np.uint64)
    # The least sum that not too many cells have, from its highest bit on: `more` have a larger one, `equal`
    # have this one so far.
    more, both, either = (np.zeros_like(equal) for _ in range(3))
    least = 0
    for number in range(len(sums) - 1, -1, -1):
        np.bitwise_and(equal, sums[number], out=both)
        np.bitwise_or(more, both, out=either)
        if _count(either) > most:
            least |= 1 << number
            equal, both = both, equal
        else:
            more, either = either, more
            equal ^= both
    sure = _cells_of(more)
    if least == 0 or len(sure) >= most:
        return sure[:most]
    # Of those with this sum as many as there is room for, from everywhere.
    tied = _cells_of(equal)
    room = most - len(sure)
    return np.sort(np.append(sure, tied[np.linspace(0, len(tied) - 1, min(room, len(tied))).astype(np.intp)]))


def _add_up(rows: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """The weighted sums of all cells at once, lowest bit first; in pieces that stay in a core's cache."""
    length = len(rows[0])
    weights = [_weight(_count(row) / (64 * length)) for row in rows]
    sums = np.zeros((sum(weights).bit_length(), length), np.uint64)
    carry, next_carry = np.zeros((2, _PIECE), np.uint64)
    for begin in range(0, length, _PIECE):
        piece = sums[:, begin : begin + _PIECE]
        carry, next_carry = carry[: piece.shape[1]], next_carry[: piece.shape[1]]
        most = 0
        for row, weight in zip(rows, weights, strict=True):
            own = row[begin : begin + _PIECE]
            for bit in range(weight.bit_length()):
                if weight >> bit & 1:
                    most += 1 << bit
                    np.copyto(carry, own)
                    for total in piece[bit : most.bit_length()]:
                        np.bitwise_and(total, carry, out=next_carry)
                        total ^= carry
                        carry, next_carry = next_carry, carry
    return sums


def _count(row: NDArray[np.uint64]) -> int:
    """How many bits are set."""
    return int(np.bitwise_count(row).sum(dtype=np.int64))


def _weight(share: float) -> int:
    return 3 if share < _RARE else 2 if share < _USUAL else 1


def _cells_of(mask: NDArray[np.uint64]) -> NDArray[np.int64]:
    words = np.flatnonzero(mask)
    where, bit = np.nonzero(np.unpackbits(mask[words].view(np.uint8)).reshape(-1, 64))
    return np.asarray(words[where] * 64 + bit, np.int64)
