"""Submits what the server lists itself: a manifest, or what lies below an address."""

from pathlib import Path
from typing import Any

from rich.text import Text

from api.cli.batch_report import exit_for_batch, show_batch
from api.cli.connection import Server, err
from api.cli.files import print_skipped
from api.cli.progress import follow_batch, show_upload
from spool.client import Refused, Spool
from spool.errors import InvalidRequest
from spool.schemas.batches import BatchDetail


def submit_batch(server: Server, spool: Spool, source: str, request: dict[str, Any], *, wait: bool) -> None:
    """Submit a batch and print it; exit with an error if a line is invalid, with `wait` also if a job failed.

    source: an address, a manifest, or a local folder that the server may read.
    """
    try:
        batch = _submit(spool, source, request)
    except Refused as error:
        _print_refused(error)
        raise
    _print_bad_lines(batch)
    print_skipped([(file.path, file.reason) for file in batch.skipped_files], batch.lines.skipped)
    if wait:
        batch = follow_batch(spool, batch.id, err)
    show_batch(server, batch)
    if wait or batch.lines.bad:
        exit_for_batch(batch)


def _manifest(source: str) -> Path:
    path = Path(source)
    if not path.is_file():
        raise InvalidRequest(f"There is no file {source}.")
    return path


def _submit(spool: Spool, source: str, request: dict[str, Any]) -> BatchDetail:
    """The batch of an address, of a local manifest, or of a local folder that the server may read."""
    if "://" in source:
        return spool.submit_batch(source, **request)
    if Path(source).is_dir():
        return spool.submit_batch(f"{Path(source).resolve().as_uri()}/", **request)
    with show_upload(err, source) as sent:
        return spool.submit_batch(_manifest(source), **request, sent=sent)


def _print_refused(error: Refused) -> None:
    """Print the lines for which a manifest was refused."""
    lines = error.problem.get("bad_lines") or []
    for bad in lines:
        err.print(Text.assemble((f"line {bad['line']}: ", "red"), bad["message"]), soft_wrap=True)
    more = int(error.problem.get("bad") or 0) - len(lines)
    if more > 0:
        err.print(f"and {more} more invalid lines")
    skipped = error.problem.get("skipped_files") or []
    print_skipped([(file["path"], file["reason"]) for file in skipped], error.problem.get("skipped"))


def _print_bad_lines(batch: BatchDetail) -> None:
    for bad in batch.bad_lines:
        err.print(Text.assemble((f"line {bad.line}: ", "red"), bad.message), soft_wrap=True)
    if batch.lines.bad > len(batch.bad_lines):
        err.print(f"and {batch.lines.bad - len(batch.bad_lines)} more invalid lines")
