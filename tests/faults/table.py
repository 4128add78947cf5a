"""The table of every fault tried, written into docs/faults.md by the run that tried them.

    python -m tests.faults.table var/faults.jsonl docs/faults.md

A line of the log is a fault as `ops.testbed.stack.Fault` saw it; the table stands between two marks.
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- made by `make faults`: begin -->", "<!-- made by `make faults`: end -->"


def rows(lines: Iterable[str]) -> list[str]:
    """The table in the order of the run: a row a fault, but one for those that repeated nothing and differ by
    their failpoint alone."""
    grouped: dict[tuple[str, str, str, str], list[tuple[str, float]]] = {}
    for line in filter(str.strip, lines):
        fault: Mapping[str, Any] = json.loads(line)
        note = "; ".join(filter(None, (fault["states"], fault["note"])))
        again = f"{fault['repeated']} of {fault['decoded']}" if fault["repeated"] else "nothing"
        named = re.fullmatch(r"(.*? at )([a-z]+\.[a-z]+)(.*)", fault["name"])
        before, point, rest = named.groups() if named and not fault["repeated"] else (fault["name"], "", "")
        grouped.setdefault((before, rest, note, again), []).append((point, fault["seconds"]))
    table = ["| fault | jobs | recovered in (s) | repeated, of all decodings |", "|---|---|---|---|"]
    for (before, rest, note, again), faults in grouped.items():
        points, seconds = zip(*faults, strict=True)
        took = " to ".join(dict.fromkeys(f"{each:.1f}" for each in (min(seconds), max(seconds))))
        table.append(f"| {before}{', '.join(filter(None, points))}{rest} | {note} | {took} | {again} |")
    return table


def replaced(page: str, table: Iterable[str]) -> str:
    """The page with this between its marks. Raises ValueError where they are not there."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError("the page has no place for the table")
    return "\n".join([before + BEGIN, "", *table, "", END + after])


def conditions(faults: int) -> str:
    """Where and when it ran, in a sentence."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    machine = (
        f"{platform.system()} with {os.cpu_count()} cores, load average {os.getloadavg()[0]:.0f} at the end"
    )
    return (
        f"{faults} faults, {datetime.now(UTC):%Y-%m-%d}, {machine}, at {commit or 'an unknown commit'}. "
        "Names with a dot\nare failpoints: places between two effects, listed in `spool/failpoints.py`."
    )


def main(log: str, page: str) -> None:
    """Write the log's faults into the page."""
    lines = Path(log).read_text(encoding="utf-8").splitlines()
    table = [conditions(len(lines)), "", *rows(lines)]
    Path(page).write_text(replaced(Path(page).read_text(encoding="utf-8"), table), encoding="utf-8")
    print(f"{len(lines)} faults written into {page}")


if __name__ == "__main__":
    main(*sys.argv[1:])
