"""The index of search by sound: which phones follow which, two seconds at a time.

A cell is `CELL` frames. A pair of phones is in a cell if the first one begins in it or in the second after it
and the other one begins up to `APART` frames later, each among what was likely there. So a word of up to a
second is whole in one cell, and a phone that was missed or put in costs some of its pairs only. A channel's
pairs are a matrix of bits, [PAIRS, width]: a row for each pair, a bit for each cell, first cell in the
highest bit. Plain numpy.
"""

import itertools
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
_SLICES = 6
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
    """The `most` cells with the most of these rows, the rarer ones counting more; each has one at least.
    open_cells: the only ones to look at. Adds up all cells at once, a bit of the sum at a time."""
    if not rows or not len(rows[0]):
        return np.zeros(0, np.int64)
    width = len(rows[0])
    padded = -(-width // 8) * 8
    sums = np.zeros((_SLICES, padded // 8), np.uint64)
    carry = np.zeros(padded, np.uint8)
    for row in rows:
        carry[:width] = row
        share = int(np.bitwise_count(row).sum()) / (8 * width)
        for bit in _bits_of_weight(share):
            _add(sums[bit:], carry.view(np.uint64))
    allowed = np.full(padded, 255, np.uint8)
    allowed[width:] = 0
    if open_cells is not None:
        allowed[:width] = open_cells
    mask = allowed.view(np.uint64)
    low, high = 1, (1 << _SLICES) - 1
    while low < high:  # the least sum that not too many cells have
        middle = (low + high) // 2
        if int(np.bitwise_count(_at_least(sums, middle) & mask).sum()) > most:
            low = middle + 1
        else:
            high = middle
    sure = _cells_of((_at_least(sums, low) & mask).view(np.uint8)[:width])
    if low == 1 or len(sure) >= most:
        return sure[:most]
    # Of those with the next smaller sum as many as there is room for, from everywhere.
    tied = _cells_of((_at_least(sums, low - 1) & ~_at_least(sums, low) & mask).view(np.uint8)[:width])
    room = most - len(sure)
    return np.sort(np.append(sure, tied[np.linspace(0, len(tied) - 1, min(room, len(tied))).astype(np.intp)]))


def _bits_of_weight(share: float) -> tuple[int, ...]:
    return (0, 1) if share < _RARE else (1,) if share < _USUAL else (0,)


def _add(sums: NDArray[np.uint64], row: NDArray[np.uint64]) -> None:
    """Add a bit to each sum, lowest slice first."""
    carry = row
    for number in itertools.count():
        if number == len(sums):
            return
        sums[number], carry = sums[number] ^ carry, sums[number] & carry


def _at_least(sums: NDArray[np.uint64], least: int) -> NDArray[np.uint64]:
    """A bit for each sum that is not smaller."""
    more = np.zeros_like(sums[0])
    equal = np.full_like(more, np.iinfo(np.uint64).max)
    for number in range(_SLICES - 1, -1, -1):
        if least >> number & 1:
            equal &= sums[number]
        else:
            more |= equal & sums[number]
            equal &= ~sums[number]
    found: NDArray[np.uint64] = more | equal
    return found


def _cells_of(mask: Bits) -> NDArray[np.int64]:
    bytes_ = np.flatnonzero(mask)
    where, bit = np.nonzero(np.unpackbits(mask[bytes_][:, None], axis=1))
    return np.asarray(bytes_[where] * 8 + bit, np.int64)
