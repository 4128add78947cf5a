"""What the commands that delete content share."""

from collections.abc import Iterable
from typing import Annotated

import typer

from api.cli.connection import err
from spool.schemas.jobs import JobDeletion

DELETED = {
    "all": "the recordings and transcripts",
    "source": "the recordings",
    "transcript": "the transcripts",
}
Copies = Annotated[
    bool,
    typer.Option(
        "--copies", help="Delete the transcripts of jobs that reused these, or that these reused, too."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def print_copies(jobs: Iterable[JobDeletion]) -> None:
    """Say which jobs still hold a transcript that was deleted."""
    gone = [job for job in jobs if job.deleted is not None and job.deleted.transcript is not None]
    held = sorted({copy for job in gone for copy in job.copies} - {job.id for job in gone})
    if held:
        err.print(
            f"The same transcripts are still in {len(held)} jobs by reuse (delete them with --copies): "
            + ", ".join(held),
            style="yellow",
            soft_wrap=True,
        )
