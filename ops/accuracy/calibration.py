"""Whether a word's confidence is the chance that it is right: a table, an expected error and a plot (SVG).

A word is right where the alignment of least edits pairs it with the same word of the reference. Knows words
and references; knows no engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spool.domain.transcript import Word
from spool.wer import normal_words

BINS = 10


def right(reference: str, words: Sequence[Word]) -> list[bool]:
    """Of each word heard, whether it is right."""
    expected = normal_words(reference)
    heard = [" ".join(normal_words(word.text)) for word in words]
    cost = np.zeros((len(expected) + 1, len(heard) + 1), np.int64)
    cost[:, 0], cost[0] = np.arange(len(expected) + 1), np.arange(len(heard) + 1)
    for i, a in enumerate(expected, 1):
        for j, b in enumerate(heard, 1):
            cost[i, j] = min(cost[i - 1, j] + 1, cost[i, j - 1] + 1, cost[i - 1, j - 1] + (a != b))
    found = [False] * len(heard)
    i, j = len(expected), len(heard)
    while i and j:
        same = expected[i - 1] == heard[j - 1]
        if cost[i, j] == cost[i - 1, j - 1] + (not same):
            found[j - 1] = same
            i, j = i - 1, j - 1
        elif cost[i, j] == cost[i, j - 1] + 1:
            j -= 1
        else:
            i -= 1
    return found


@dataclass(frozen=True)
class Bin:
    """Words of one tenth of confidence: how many, their mean confidence, the share that is right."""

    count: int
    confidence: float
    right: float


def bins(confidences: Sequence[float], correct: Sequence[bool]) -> list[Bin]:
    """The words by tenths of confidence, empty tenths left out."""
    sure, good = np.array(confidences), np.array(correct)
    place = np.minimum((sure * BINS).astype(int), BINS - 1)
    return [
        Bin(int(mine.sum()), float(sure[mine].mean()), float(good[mine].mean()))
        for k in range(BINS)
        if (mine := place == k).any()
    ]


def expected_error(found: Sequence[Bin]) -> float:
    """Mean distance of confidence and share right, over words (expected calibration error)."""
    return sum(b.count * abs(b.confidence - b.right) for b in found) / max(1, sum(b.count for b in found))


SIZE, EDGE = 360, 50
COLOURS = ["#1f6fb2", "#c2571a", "#2e7d32"]


def reliability_plot(curves: Mapping[str, Sequence[Bin]]) -> str:
    """An SVG: share right over confidence, a curve a set; dots grow with words; the diagonal is ideal."""
    body = [_axes()]
    for (name, found), colour in zip(curves.items(), COLOURS, strict=False):
        points = [(_x(b.confidence), _y(b.right)) for b in found]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        body.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        most = max(b.count for b in found)
        for (x, y), b in zip(points, found, strict=True):
            radius = 2.5 + 5.5 * (b.count / most) ** 0.5
            body.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}" fill-opacity="0.75"/>'
            )
        row = 22 + 18 * list(curves).index(name)
        body.append(f'<rect x="{EDGE + 12}" y="{row - 10}" width="12" height="12" fill="{colour}"/>')
        body.append(f'<text x="{EDGE + 30}" y="{row}">{name}</text>')
    width, height = SIZE + EDGE + 20, SIZE + EDGE + 20
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}'
    style = ' font-family="sans-serif" font-size="13" fill="#222">'
    return (
        "\n".join([head + style, f'<rect width="{width}" height="{height}" fill="#fff"/>', *body, "</svg>"])
        + "\n"
    )


def _x(value: float) -> float:
    return EDGE + SIZE * value


def _y(value: float) -> float:
    return 10 + SIZE * (1 - value)


def _axes() -> str:
    lines = [f'<rect x="{EDGE}" y="10" width="{SIZE}" height="{SIZE}" fill="none" stroke="#888"/>']
    lines.append(
        f'<line x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(1)}" stroke="#888" stroke-dasharray="5 4"/>'
    )
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        lines.append(f'<text x="{_x(tick)}" y="{SIZE + 28}" text-anchor="middle">{tick:g}</text>')
        lines.append(f'<text x="{EDGE - 6}" y="{_y(tick) + 4}" text-anchor="end">{tick:g}</text>')
    lines.append(f'<text x="{_x(0.5)}" y="{SIZE + 52}" text-anchor="middle">confidence</text>')
    middle = _y(0.5)
    turned = f'transform="rotate(-90 14 {middle})"'
    lines.append(f'<text x="14" y="{middle}" text-anchor="middle" {turned}>share right</text>')
    return "\n".join(lines)
