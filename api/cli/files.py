"""Which files are recordings, and their reference texts from a manifest. Opens no audio."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

from cyclopts import Parameter
from rich.text import Text

from api.cli.connection import err
from api.cli.tables import count_of
from spool import schemas
from spool.errors import InvalidRequest

if TYPE_CHECKING:
    from api.local.instance import Running

MANIFEST = "manifest.jsonl"
_MANIFESTS = {".jsonl", ".ndjson", ".csv"}
Skipped = list[tuple[str, str]]
"""Paths, each with the reason why it is not a recording."""
_SHOWN = 20

DELETED = {
    "all": "the recordings and transcripts",
    "source": "the recordings",
    "transcript": "the transcripts",
}
Copies = Annotated[
    bool,
    Parameter(help="Delete the transcripts of jobs that reused these, or that these reused, too."),
]


def as_local_path(source: str, running: Running | None) -> str:
    """The path that a `file://` address names, where the server is a stack on this machine: what its settings
    do not let it read can then be uploaded."""
    address = urlsplit(source)
    if running is None or address.scheme != "file" or address.netloc not in ("", "localhost"):
        return source
    return unquote(address.path)


def recordings_under(path: Path) -> tuple[list[Path], Skipped]:
    """The file itself, or every recording below the folder in order of names, and the other files. Raises
    `InvalidRequest` if there is no recording, or if the file is a batch's manifest."""
    if path.is_file():
        if path.suffix.lower() in _MANIFESTS:
            raise InvalidRequest(
                f"{path} is a manifest, not a recording. Submit it with `spool batch submit {path}`."
            )
        return [path], []
    if not path.is_dir():
        raise InvalidRequest(f"There is no file or folder {path}.")
    from spool.recordings.folder import walk

    recordings: list[Path] = []
    skipped: Skipped = []
    for file, reason in walk(path):
        if reason is None:
            recordings.append(file)
        else:
            skipped.append((str(file), reason))
    if not recordings:
        print_skipped(skipped)
        raise InvalidRequest(f"There are no recordings under {path}.")
    return sorted(recordings), skipped


def print_skipped(skipped: Skipped, total: int | None = None) -> None:
    """Print to standard error which files were skipped, and why; `total` counts them all."""
    for path, reason in skipped[:_SHOWN]:
        err.print(Text.assemble((f"skipped {path}: ", "yellow"), reason), soft_wrap=True)
    more = (total or len(skipped)) - len(skipped[:_SHOWN])
    if more:
        err.print(f"and {count_of(more, 'more file')} skipped", style="yellow")


def references_of(folder: Path) -> dict[Path, str]:
    """Reference texts by file, from `manifest.jsonl` in the folder; empty without one.

    Raises `InvalidRequest` that names the line which cannot be read.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return {}
    with manifest.open(encoding="utf-8") as lines:
        return dict(_references(folder, lines))


def _references(folder: Path, lines: Iterable[str]) -> Iterable[tuple[Path, str]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            yield folder / str(entry["file"]), str(entry["text"])
        except (ValueError, KeyError, TypeError):
            raise InvalidRequest(f"{folder / MANIFEST}:{number} needs `file` and `text`.") from None


def print_copies(jobs: Iterable[schemas.JobDeletion]) -> None:
    """Print which jobs still have a transcript that was deleted."""
    gone = [job for job in jobs if job.deleted is not None and job.deleted.transcript is not None]
    held = sorted({copy for job in gone for copy in job.copies} - {job.id for job in gone})
    if held:
        err.print(
            f"The same transcripts remain in {count_of(len(held), 'other job')}; delete them with --copies: "
            + ", ".join(held),
            style="yellow",
            soft_wrap=True,
        )
