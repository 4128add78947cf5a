"""A CTC head's log-probabilities for the labels of a text, stored compactly frame by frame.

A frame keeps the labels whose log-probability is above `FLOOR`: some twenty of a vocabulary of a thousand, so
that an hour takes a few megabytes and can be kept until the whole recording is decoded. Other labels count as
`FLOOR`, a probability that rounds to 0. Plain numpy.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FLOOR = -10.0
_STEP = -FLOOR / 65_535
_LEVEL = 1  # of zlib; higher levels take long and save little


@dataclass(frozen=True, slots=True, eq=False)
class Emissions:
    """Sparse log-probabilities of T frames. counts: uint16 [T], how many labels each frame keeps; columns:
    uint16 [N], which, the blank last; costs: uint16 [N], the negative log-probability in steps of
    -FLOOR / 65535."""

    counts: NDArray[np.uint16]
    columns: NDArray[np.uint16]
    costs: NDArray[np.uint16]

    @classmethod
    def of(cls, log_probs: NDArray[np.float32]) -> "Emissions":
        """log_probs: [T, L + 1] of the labels, blank last."""
        rows, columns = np.nonzero(log_probs > FLOOR)
        counts = np.bincount(rows, minlength=len(log_probs))
        costs = np.rint(np.maximum(-log_probs[rows, columns], 0.0) / _STEP)
        return cls(counts.astype(np.uint16), columns.astype(np.uint16), costs.astype(np.uint16))

    @classmethod
    def unpack(cls, data: bytes) -> "Emissions":
        """The inverse of `packed`."""
        numbers = np.frombuffer(zlib.decompress(data), "<u2")
        frames, kept = (int(each) for each in numbers[:4].view("<u4"))
        counts, columns, costs = np.split(numbers[4:], [frames, frames + kept])
        return cls(counts, columns, costs)

    @classmethod
    def join(cls, parts: "Sequence[Emissions]") -> "Emissions":
        """The parts concatenated."""
        empty = np.zeros(0, np.uint16)
        return cls(
            np.concatenate([empty, *(part.counts for part in parts)]),
            np.concatenate([empty, *(part.columns for part in parts)]),
            np.concatenate([empty, *(part.costs for part in parts)]),
        )

    def pack(self) -> bytes:
        """The emissions as bytes."""
        lengths = np.array([len(self.counts), len(self.columns)], "<u4").view("<u2")
        numbers = np.concatenate([lengths, self.counts, self.columns, self.costs])
        return zlib.compress(numbers.astype("<u2").tobytes(), _LEVEL)

    def between(self, first: int, last: int) -> "Emissions":
        """The frames [first, last)."""
        start, end = (int(self.counts[:at].sum(dtype=np.int64)) for at in (first, last))
        return Emissions(self.counts[first:last], self.columns[start:end], self.costs[start:end])

    def dense(self, width: int) -> NDArray[np.float32]:
        """float32 [T, width]: the log-probabilities of all `width` labels, the blank last."""
        table = np.full((len(self.counts), width), FLOOR, np.float32)
        rows = np.repeat(np.arange(len(self.counts)), self.counts)
        table[rows, self.columns] = self.costs * np.float32(-_STEP)
        return table
