"""Follows uploads, jobs and batches with one progress line; draws nothing if there is no terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from api.cli.tables import format_duration
from spool import clock, schemas
from spool.client import Spool
from spool.client.exchange import Sent
from spool.domain.jobs import JobState

_POLL_S = 0.4
_LINE_S = 10.0
# Before this, time left is a guess.
_SURE_S = 5.0
# Jobs polled in each round; the queue serves the oldest first, so later ones have not begun.
_WINDOW = 64
# Smaller files are sent too quickly for a progress line.
_WORTH_A_LINE = 4 * 2**20


def follow(
    spool: Spool,
    jobs: Sequence[schemas.JobOut],
    console: Console,
    between: Callable[[], None] = lambda: None,
    *,
    prints_lines: bool = False,
) -> list[schemas.JobDetail]:
    """Wait until every job has ended; returns them in the given order.

    `between` is called in each round and may raise to stop waiting. prints_lines: without a terminal, print
    a line every ten seconds.
    """
    next_line = clock.monotonic() + _LINE_S if prints_lines and not console.is_terminal else math.inf
    ended: dict[str, schemas.JobDetail] = {}
    last: dict[str, schemas.JobOut] = {job.id: job for job in jobs}
    printed = {job.waiting_for for job in jobs}
    began, first = clock.monotonic(), math.nan
    columns = (*_fields("files", "audio"), TimeElapsedColumn(), *_fields("left", "now"))
    with _progress(console, "transcribing", *columns) as progress:
        bar = progress.add_task("", total=float(len(last)), audio="", files="", left="", now="")
        while True:
            between()
            for job_id in [job_id for job_id in last if job_id not in ended][:_WINDOW]:
                job = spool.job(job_id)
                last[job_id] = job
                if job.state.terminal:
                    ended[job_id] = job
                if job.waiting_for and job.waiting_for not in printed:
                    printed.add(job.waiting_for)
                    progress.console.print(Text(f"waiting for {job.waiting_for}", style="yellow"))
            shares = [
                1.0 if job_id in ended else job.progress.fraction or 0.0 for job_id, job in last.items()
            ]
            audio = format_duration(sum(job.progress.done_seconds for job in last.values()))
            files = f"{len(ended)}/{len(last)} files"
            done, elapsed = sum(shares), clock.monotonic() - began
            first = done if math.isnan(first) else first
            left = describe_left(elapsed, done - first, len(last) - done)
            now = ", ".join(job.name for job in last.values() if job.state is JobState.RUNNING)
            progress.update(bar, completed=done, audio=f"{audio} of audio", files=files, left=left, now=now)
            if clock.monotonic() >= next_line:
                next_line += _LINE_S
                known = ", ".join(filter(None, (files, f"{audio} of audio", left)))
                console.print(f"  transcribing  {known}")
            if len(ended) == len(last):
                return [ended[job.id] for job in jobs]
            clock.sleep(_POLL_S)


def describe_left(elapsed: float, done: float, left: float) -> str:
    """How long the rest takes if it goes on as in these `elapsed` seconds, in which `done` recordings (or
    parts of them) were done; empty while that is unknown."""
    if elapsed < _SURE_S or done <= 0 or left <= 0:
        return ""
    return f"about {format_duration(elapsed * left / done)} left"


def follow_batch(spool: Spool, batch_id: str, console: Console) -> schemas.BatchDetail:
    """Wait until the batch has ended, and return it."""
    with _progress(console, "transcribing", *_fields("files", "left"), TimeElapsedColumn()) as progress:
        bar = progress.add_task("", total=None, files="", left="")
        printed: set[str] = set()

        def show(batch: schemas.BatchDetail) -> None:
            total = sum(batch.counts.values())
            ended = sum(number for state, number in batch.counts.items() if state.terminal)
            for reason in batch.waiting_for:
                if reason not in printed:
                    printed.add(reason)
                    progress.console.print(Text(f"waiting for {reason}", style="yellow"))
            left = (
                "" if batch.time.left_seconds is None else f"{format_duration(batch.time.left_seconds)} left"
            )
            progress.update(bar, total=total, completed=ended, files=f"{ended}/{total} files", left=left)

        return spool.wait_batch(batch_id, progress=show)


@contextmanager
def show_upload(console: Console, name: str) -> Iterator[Sent]:
    """Show progress while a large file is uploaded; call the yielded function with bytes sent and the
    total."""
    columns = (DownloadColumn(), TextColumn("{task.description}", markup=False))
    with _progress(console, "sending", *columns) as progress:
        bar = progress.add_task(name, visible=False)

        def show(done: int, total: int) -> None:
            progress.update(bar, total=total, completed=done, visible=done < total and total > _WORTH_A_LINE)

        yield show
        progress.update(bar, visible=False)


def _fields(first: str, second: str) -> tuple[ProgressColumn, ProgressColumn]:
    return TextColumn(f"{{task.fields[{first}]}}"), TextColumn(f"[dim]{{task.fields[{second}]}}[/dim]")


def _progress(console: Console, doing: str, *columns: ProgressColumn) -> Progress:
    return Progress(
        TextColumn(f"  {doing}"),
        BarColumn(bar_width=32, complete_style="cyan", finished_style="green"),
        *columns,
        console=console,
        disable=not console.is_terminal,
    )
