"""The measurements as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ops.accuracy.calibration import Bin, expected_error
from ops.accuracy.measure import Difference, rate
from ops.accuracy.recordings import Outcome
from spool.wer import WordErrors

Errors = Mapping[str, Mapping[str, Sequence[WordErrors]]]  # by way, by set


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its first column text and the others figures."""
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def percent(value: float) -> str:
    """One decimal."""
    return f"{100 * value:.1f}"


def by_way(errors: Errors, ways: Sequence[str], sets: Sequence[str]) -> str:
    """Error rates, a row a way and a column a set."""
    rows = [[way, *(percent(rate(errors[way][name])) for name in sets)] for way in ways]
    return table(["WER, %", *sets], rows)


def points(found: Difference) -> str:
    """The difference in points with its interval, marked where it leaves out none."""
    text = f"{100 * found.rate:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
    return f"**{text}**" if found.is_sure else text


def by_length(
    found: Mapping[str, Mapping[str, Outcome]], cut: Mapping[str, tuple[WordErrors, WordErrors]]
) -> str:
    """Error rates of the long recordings by length of chunks, and of the same speech cut at its segments."""
    names = list(cut)
    rows = [
        [f"chunks of at most {name} s", *(percent(each[n].errors.rate) for n in names)]
        for name, each in found.items()
    ]
    rows.append(["cut at its reference segments", *(percent(cut[n][0].rate) for n in names)])
    rows.append(["the same, neighbours joined up to 25 s", *(percent(cut[n][1].rate) for n in names)])
    return table(["WER, %", *names], rows)


def at_seams(outcomes: Mapping[str, Outcome]) -> str:
    """What happens within a second of a seam, beside elsewhere."""
    rows = []
    for name, outcome in outcomes.items():
        s = outcome.seams
        near = f"{s.lost_near} of {s.near} ({percent(s.lost_near / max(1, s.near))})"
        far = f"{s.lost_far} of {s.far} ({percent(s.lost_far / max(1, s.far))})"
        twice = f"{s.doubled_near}", f"{s.doubled_far}"
        rows.append(
            [name, str(s.seams), near, far, *twice, f"{outcome.covered:.0%}", f"{outcome.times_off:.2f} s"]
        )
    head = [
        "recording",
        "seams",
        "lost near them, %",
        "lost elsewhere, %",
        "doubled near",
        "doubled elsewhere",
    ]
    return table([*head, "covered", "word starts off, median"], rows)


def calibration(curves: Mapping[str, Sequence[Bin]]) -> str:
    """Words, mean confidence and share right by tenths, and the expected calibration error."""
    rows = []
    for name, found in curves.items():
        count = sum(b.count for b in found)
        sure = sum(b.count * b.confidence for b in found) / max(1, count)
        good = sum(b.count * b.right for b in found) / max(1, count)
        rows.append([name, str(count), f"{sure:.2f}", f"{good:.2f}", f"{expected_error(found):.3f}"])
    return table(["words of", "words", "mean confidence", "share right", "expected calibration error"], rows)
