"""Which words of two texts are the same: the pairs of a least-edits alignment (Wagner and Fischer 1974), in
memory of one row by dividing (Hirschberg 1975), so that it holds texts of many hours. Pure."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
_TABLE_CELLS = 1_000_000
_ROWS_A_CHECK = 1_000
Check = Callable[[], None]


def match_words(
    reference: Sequence[str], hypothesis: Sequence[str], check: Check = lambda: None
) -> list[tuple[int, int]]:
    """The pairs (index in reference, index in hypothesis) of equal words, both rising. `check` is called now
    and then, and may raise to stop."""
    numbers = {word: number for number, word in enumerate({*reference, *hypothesis})}
    left = np.array([numbers[word] for word in reference], np.int32)
    right = np.array([numbers[word] for word in hypothesis], np.int32)
    pairs: list[tuple[int, int]] = []
    waiting = [(0, len(left), 0, len(right))]
    while waiting:
        top, bottom, first, last = waiting.pop()
        rows, columns = left[top:bottom], right[first:last]
        if len(rows) < 2 or rows.size * columns.size <= _TABLE_CELLS:
            pairs += [(top + row, first + column) for row, column in _trace_path(rows, columns)]
            continue
        half = len(rows) // 2
        costs = (
            _edits(rows[:half], columns, check=check)[-1]
            + _edits(rows[half:][::-1], columns[::-1], check=check)[-1][::-1]
        )
        cut = int(costs.argmin())
        waiting.append((top + half, bottom, first + cut, last))
        waiting.append((top, top + half, first, first + cut))
    return pairs


def _edits(rows: Int32, columns: Int32, *, keep: bool = False, check: Check = lambda: None) -> list[Int32]:
    """Edits between each beginning of `rows` and each beginning of `columns`, [len(columns) + 1] a row; the
    last row alone, or all of them."""
    steps = np.arange(len(columns) + 1, dtype=np.int32)
    table = [steps]
    for index, word in enumerate(rows.tolist(), start=1):
        if index % _ROWS_A_CHECK == 0:
            check()
        before = table[-1]
        row = np.empty_like(steps)
        row[0] = index
        np.minimum(before[1:] + 1, before[:-1] + (columns != word), out=row[1:])
        # An insertion costs one a column: the least of all that come from the left.
        row = np.minimum.accumulate(row - steps) + steps
        if keep:
            table.append(row)
        else:
            table = [row]
    return table


def _trace_path(rows: Int32, columns: Int32) -> list[tuple[int, int]]:
    table = _edits(rows, columns, keep=True)
    row, column, pairs = len(rows), len(columns), []
    while row and column:
        equal = rows[row - 1] == columns[column - 1]
        if table[row][column] == table[row - 1][column - 1] + (not equal):
            row, column = row - 1, column - 1
            if equal:
                pairs.append((row, column))
        elif table[row][column] == table[row - 1][column] + 1:
            row -= 1
        else:
            column -= 1
    return pairs[::-1]
