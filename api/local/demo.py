"""`spool demo`: transcribes a folder of recordings with a complete stack, and prints the results.

Starts a stack of its own in a new home, submits over HTTP (every second file as an upload, the others by
address), follows the jobs, prints words and costs, and stops the stack.
"""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from api.cli.files import recordings_under, references_of
from api.cli.progress import follow
from api.cli.tables import cost_table, format_duration, format_money, format_speed, indent
from api.local.stack import Stack
from api.local.token import local_token
from spool import clock
from spool.client import Spool
from spool.domain.jobs import JobState
from spool.schemas.costs import CostReportOut
from spool.schemas.jobs import JobDetail
from spool.wer import WordErrors, total_errors, word_errors

# The demo must not write into an existing installation, so the environment does not override these.
_OWN = (
    "HOME",
    "DATABASE_URL",
    "REDIS_URL",
    "OBJECTS",
    "API_HOST",
    "API_PORT",
    "API_TOKEN",
    "SOURCE_ROOTS",
    "POOL",
)


@dataclass(frozen=True)
class Result:
    """One recording after its job has ended."""

    file: Path
    name: str
    job: JobDetail
    text: str
    errors: WordErrors | None


@dataclass(frozen=True)
class DemoResults:
    """All results of the demo, and how many of its processes did not end."""

    results: tuple[Result, ...]
    left_behind: int

    @property
    def done(self) -> int:
        """Jobs that have a transcript."""
        return sum(result.job.state is JobState.DONE for result in self.results)

    @property
    def failed(self) -> int:
        """Jobs that have none."""
        return len(self.results) - self.done

    @property
    def exit_code(self) -> int:
        """0 when every job is done and no process is left."""
        return 1 if self.failed or self.left_behind else 0

    def last_line(self) -> str:
        """`N done, M failed, WER x.x %`; the rate is over what is done and has a reference."""
        errors = [result.errors for result in self.results if result.errors is not None]
        rate = f"{total_errors(errors).rate * 100:.1f} %" if errors else "n/a"
        return f"{self.done} done, {self.failed} failed, WER {rate}"


def demo_environ(environ: Mapping[str, str], home: Path, samples: Path) -> dict[str, str]:
    """The environment of the demo's stack: separate stores, a free port, and access to the samples only."""
    own = {f"SPOOL_{name}" for name in _OWN} | {f"SPOOL_{name}_FILE" for name in _OWN}
    kept = {name: value for name, value in environ.items() if name.upper() not in own}
    return kept | {
        "SPOOL_HOME": str(home),
        "SPOOL_API_PORT": "0",
        "SPOOL_SOURCE_ROOTS": str(samples.resolve()),
        # Idle time is counted up to a worker's last heartbeat, and a demo is shorter than the usual interval.
        "SPOOL_HEARTBEAT_SECONDS": "1",
    }


def run_demo(samples: Path, base: Path, environ: Mapping[str, str], console: Console) -> DemoResults:
    """Run the demo over `samples` in a fresh folder below `base`, kept if something went wrong."""
    files, _ = recordings_under(samples)
    base.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="run-", dir=base))
    console.print(f"\n[bold]Spool[/bold] · {len(files)} recordings from {samples}\n")
    status = console.status("")
    stack = Stack(demo_environ(environ, home, samples), lambda step: status.update(f"[dim]{step}[/dim]"))
    try:
        began = clock.monotonic()
        with status:
            stack.__enter__()
        console.print(
            f"  running       {stack.url}  [dim]after {format_duration(clock.monotonic() - began)}[/dim]"
        )
        try:
            results, costs = _transcribe(stack, samples, files, console)
            _print_page(results, costs, console)
        finally:
            with status:
                stack.__exit__(None, None, None)
    finally:
        for survivor in stack.left_behind:
            console.print(Text(f"  left behind: {survivor.pid} {survivor.command}", style="red"))
    outcome = DemoResults(tuple(results), len(stack.left_behind))
    if not stack.left_behind:
        console.print("  [dim]stopped       no process left behind[/dim]")
    if outcome.exit_code == 0:
        shutil.rmtree(home)
    else:
        console.print(Text(f"  kept for you to look at: {home}", style="yellow"))
    console.print()
    console.print(outcome.last_line(), soft_wrap=True)
    return outcome


def _transcribe(
    stack: Stack, samples: Path, files: list[Path], console: Console
) -> tuple[list[Result], CostReportOut]:
    references = references_of(samples if samples.is_dir() else samples.parent)
    with Spool(stack.url, local_token(stack.settings.home)) as spool:
        jobs = []
        for number, file in enumerate(files):
            name = _name(file, samples)
            if number % 2:
                jobs.append(spool.submit(file, name=name, project="demo"))
            else:
                jobs.append(spool.submit(file.resolve().as_uri(), name=name, project="demo"))
        uploads = len(files) // 2
        console.print(f"  submitted     {len(files) - uploads} by address, {uploads} uploaded")
        ended = follow(spool, jobs, console, stack.check, prints_lines=True)
        results = [
            _result(spool, file, job, references.get(file)) for file, job in zip(files, ended, strict=True)
        ]
        return results, spool.costs(group_by="model")


def _result(spool: Spool, file: Path, job: JobDetail, reference: str | None) -> Result:
    if job.state is not JobState.DONE:
        return Result(file, job.name, job, "", None)
    text = spool.words(job.id).text
    errors = None if reference is None else word_errors(reference, text)
    return Result(file, job.name, job, text, errors)


def _name(file: Path, samples: Path) -> str:
    return file.relative_to(samples).as_posix() if samples.is_dir() else file.name


def _print_page(results: list[Result], costs: CostReportOut, console: Console) -> None:
    console.print()
    for result in results:
        console.print(_heading(result))
        console.print(Padding(_body(result), (0, 2, 0, 4), expand=False))
        console.print()
    console.print(indent(Text("What it cost", style="bold"), cost_table(costs)))
    console.print()


def _heading(result: Result) -> Text:
    cost = result.job.cost
    facts = [
        format_duration(result.job.progress.audio_seconds),
        format_speed(cost.rtfx),
        format_money(cost.billable + cost.wasted, cost.currency),
    ]
    if result.errors is not None and result.errors.words:
        facts.append(f"WER {result.errors.rate * 100:.0f} %")
    return Text.assemble("  ", (result.name, "bold"), "  ", (" · ".join(facts), "dim"))


def _body(result: Result) -> Text:
    if result.job.error is not None:
        return Text(result.job.error.message, style="red")
    if result.job.state is not JobState.DONE:
        return Text(result.job.state.value, style="yellow")
    return Text(result.text) if result.text else Text("(no words)", style="dim italic")
