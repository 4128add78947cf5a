"""What a machine has to confirm, as steps with an expected and a found outcome, and the report of them.

Knows what an outcome is, the order of the steps and how the report is written; what is measured stands in
`confirm_steps` and `confirm_engine`. A step that fails by itself is an outcome, not the end.
"""

import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import spool
from worker.machine.hardware import this_machine

Verdict = Literal["ok", "differs", "not possible here"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was expected and found; `details` line by line for whoever reads the report."""

    verdict: Verdict
    found: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """Something to confirm. `run` answers, or raises: then it differs."""

    name: str
    expected: str
    run: Callable[[], Outcome]


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report; times in seconds."""

    name: str
    expected: str
    verdict: Verdict
    found: str
    seconds: float
    details: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """Everything that was found on one machine."""

    machine: str
    system: str
    version: str
    began: str
    results: list[Result] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Whether anything is otherwise than expected."""
        return any(result.verdict == "differs" for result in self.results)

    def as_json(self) -> str:
        """For machines."""
        return json.dumps(asdict(self), indent=2)

    def as_markdown(self) -> str:
        """For people: a table, and what lies behind it."""
        lines = [
            "# What this machine confirms",
            "",
            f"{self.machine}; {self.system}; Spool {self.version}; {self.began}",
            "",
            "| step | expected | found | | seconds |",
            "|---|---|---|---|---|",
        ]
        for result in self.results:
            cells = (result.name, result.expected, result.found, f"**{result.verdict}**")
            row = " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
            lines.append(f"| {row} | {result.seconds:.1f} |")
        for result in self.results:
            if result.details:
                lines += ["", f"## {result.name}", "", *(f"    {detail}" for detail in result.details)]
        return "\n".join(lines) + "\n"


def new_report() -> Report:
    """One of this machine, with nothing in it yet."""
    system = platform.mac_ver()[0] or platform.release()
    return Report(
        machine=str(this_machine()),
        system=f"{platform.system()} {system}, Python {platform.python_version()}",
        version=spool.__version__,
        began=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def confirm(report: Report, steps: list[Step]) -> Iterator[Result | Step]:
    """Run the steps in order: each is given before it begins, and its result, which is then in the report."""
    for step in steps:
        yield step
        begun = time.monotonic()
        try:
            outcome = step.run()
        except Exception as error:  # noqa: BLE001 - whatever breaks a step is what was found
            outcome = Outcome("differs", f"{type(error).__name__}: {error}")
        seconds = time.monotonic() - begun
        result = Result(step.name, step.expected, outcome.verdict, outcome.found, seconds, outcome.details)
        report.results.append(result)
        yield result


def write_report(report: Report, folder: Path) -> tuple[Path, Path]:
    """The report as JSON and as text; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"confirm-{platform.node() or 'machine'}-{report.began.replace(':', '').replace('+0000', 'Z')}"
    paths = folder / f"{name}.json", folder / f"{name}.md"
    paths[0].write_text(report.as_json() + "\n", encoding="utf-8")
    paths[1].write_text(report.as_markdown(), encoding="utf-8")
    return paths
