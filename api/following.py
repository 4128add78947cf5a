"""Follows jobs to their end with one calm progress line. Knows how to ask and draw; decides nothing."""

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from api.client import Client
from api.printing import clock
from spool.wire.jobs import JobDetail, JobOut

_POLL_S = 0.4
# Jobs that are asked for at once; the queue serves the oldest first, so the others have not begun.
_WINDOW = 64


def follow(
    client: Client, jobs: Sequence[JobOut], console: Console, between: Callable[[], None] = lambda: None
) -> list[JobDetail]:
    """Wait until every job has ended; the jobs as they ended, in the order given.

    `between` is called once a round and may raise to give up.
    """
    ended: dict[str, JobDetail] = {}
    last: dict[str, JobOut] = {job.id: job for job in jobs}
    with _progress(console) as progress:
        bar = progress.add_task("", total=float(len(last)), audio="", files=f"0/{len(last)}")
        while True:
            between()
            for job_id in [job_id for job_id in last if job_id not in ended][:_WINDOW]:
                job = client.job(job_id)
                last[job_id] = job
                if job.state.terminal:
                    ended[job_id] = job
            shares = [
                1.0 if job_id in ended else job.progress.fraction or 0.0 for job_id, job in last.items()
            ]
            audio = sum(job.progress.done_seconds for job in last.values())
            progress.update(bar, completed=sum(shares), audio=clock(audio), files=f"{len(ended)}/{len(last)}")
            if len(ended) == len(last):
                return [ended[job.id] for job in jobs]
            time.sleep(_POLL_S)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("  transcribing"),
        BarColumn(bar_width=32, complete_style="cyan", finished_style="green"),
        TextColumn("{task.fields[files]} files"),
        TextColumn("[dim]{task.fields[audio]} of audio[/dim]"),
        TimeElapsedColumn(),
        console=console,
        # Piped, a bar is noise: only its end is printed.
        transient=False,
    )
