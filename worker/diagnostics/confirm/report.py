"""The report of a confirmation: steps, each with an expected and an actual outcome.

Runs the steps in order and writes the report; the steps themselves are in `steps`, `engine` and `quality`. A
step that raises counts as differing, and the next one runs.
"""

import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import spool
from spool import clock
from worker.machine.hardware import this_machine

Verdict = Literal["ok", "differs", "not possible here"]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of a step; `details` are lines for the report."""

    verdict: Verdict
    actual: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """Something to confirm. `run` gives the outcome; if it raises, the outcome is that it differs."""

    name: str
    expected: str
    run: Callable[[], StepOutcome]


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report; times in seconds."""

    name: str
    expected: str
    verdict: Verdict
    actual: str
    seconds: float
    details: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """The results of one machine."""

    machine: str
    system: str
    version: str
    began: str
    results: list[Result] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Whether anything differs from what was expected."""
        return any(result.verdict == "differs" for result in self.results)

    def as_json(self) -> str:
        """The report as JSON."""
        return json.dumps(asdict(self), indent=2)

    def as_markdown(self) -> str:
        """The report as a Markdown table, with details below."""
        lines = [
            "# What this machine confirms",
            "",
            f"{self.machine}; {self.system}; Spool {self.version}; {self.began}",
            "",
            "| step | expected | actual | | seconds |",
            "|---|---|---|---|---|",
        ]
        for result in self.results:
            cells = (result.name, result.expected, result.actual, f"**{result.verdict}**")
            row = " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
            lines.append(f"| {row} | {result.seconds:.1f} |")
        for result in self.results:
            if result.details:
                lines += ["", f"## {result.name}", "", *(f"    {detail}" for detail in result.details)]
        return "\n".join(lines) + "\n"


def new_report() -> Report:
    """An empty report for this machine."""
    system = platform.mac_ver()[0] or platform.release()
    return Report(
        machine=str(this_machine()),
        system=f"{platform.system()} {system}, Python {platform.python_version()}",
        version=spool.__version__,
        began=clock.now().isoformat(timespec="seconds"),
    )


def confirm(report: Report, steps: list[Step]) -> Iterator[Result | Step]:
    """Run the steps in order; yields each one before it begins, then its result, which is also in the
    report."""
    for step in steps:
        yield step
        begun = clock.monotonic()
        try:
            outcome = step.run()
        except Exception as error:  # noqa: BLE001 - whatever breaks a step is its outcome
            outcome = StepOutcome("differs", f"{type(error).__name__}: {error}")
        seconds = clock.monotonic() - begun
        result = Result(step.name, step.expected, outcome.verdict, outcome.actual, seconds, outcome.details)
        report.results.append(result)
        yield result


def write_report(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write the report as JSON and as Markdown; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"confirm-{platform.node() or 'machine'}-{report.began.replace(':', '').replace('+0000', 'Z')}"
    paths = folder / f"{name}.json", folder / f"{name}.md"
    paths[0].write_text(report.as_json() + "\n", encoding="utf-8")
    paths[1].write_text(report.as_markdown(), encoding="utf-8")
    return paths
