"""`spool submit`: a job for each recording, and what other commands that submit share with it."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from api.cli.batch_submission import submit_batch
from api.cli.connection import Server, err, local_stack, out, print_json
from api.cli.files import as_local_path, print_skipped, recordings_under
from api.cli.jobs import exit_for
from api.cli.options import Again, Submission, repeat_fields
from api.cli.progress import follow, show_upload
from api.cli.tables import job_table
from api.local.instance import Running
from spool.client import Refused, Spool, Unreachable
from spool.client.exchange import Sent
from spool.domain.declaration import in_flags
from spool.domain.jobs import JobState
from spool.domain.manifest import NAME_LENGTH
from spool.domain.options import Options
from spool.errors import InvalidRequest
from spool.schemas.jobs import JobDetail, SubmissionRequest


def submit(
    *sources: Annotated[
        str,
        Parameter(
            name="PATH|URL",
            help="Files, folders, https:// or s3:// addresses. s3://bucket/prefix/ is all below it.",
            required=True,
        ),
    ],
    how: Submission = Submission(),
    again: Again = False,
    wait: Annotated[bool, Parameter(help="Wait until the jobs have ended.")] = False,
    server: Server = Server(),
) -> None:
    """Submit recordings, or every recording in a folder.

    A recording that was submitted before with the same options is not submitted again, unless its job failed.
    One that is empty or cannot be decoded is not tried again.
    """
    request = how.to_request() | repeat_fields(again)
    prefix = next(filter(_is_prefix, sources), None)
    if prefix is not None and len(sources) > 1:
        raise InvalidRequest(f"Submit {prefix} by itself: what is below it becomes a batch.")
    with server.connect() as spool:
        if prefix is not None:
            submit_batch(server, spool, prefix, request, wait=wait)
        else:
            submit_recordings(server, spool, sources, request, wait=wait)


def _is_prefix(source: str) -> bool:
    """Whether an address is that of a bucket, or of all that is below a prefix of one."""
    scheme, _, rest = source.partition("://")
    return scheme.lower() == "s3" and (rest.endswith("/") or "/" not in rest)


def submit_recordings(
    server: Server, spool: Spool, sources: Sequence[str], request: dict[str, Any], *, wait: bool
) -> None:
    """Submit a job for each recording and print them; files that the server may not read are uploaded."""
    submitted, running = Submitted(), local_stack(spool)
    recordings = list(_expand([as_local_path(source, running) for source in sources]))
    try:
        _submit_all(spool, running, recordings, request, submitted, quiet=server.as_json)
        if submitted.unchanged:
            err.print(f"{submitted.unchanged} unchanged, {submitted.new} new", style="dim")
        if not wait:
            _print_failed_before(submitted.jobs)
        conclude(server, spool, submitted.jobs, submitted.refused, wait=wait)
    except (KeyboardInterrupt, Unreachable):
        if submitted.jobs:
            err.print(
                f"{len(submitted.jobs)} of {len(recordings)} recordings were submitted and go on; "
                "`spool follow` shows them. The same command submits the rest.",
                style="yellow",
                soft_wrap=True,
            )
        raise


def _print_failed_before(jobs: Sequence[JobDetail]) -> None:
    """Name the recordings that cannot be transcribed, which were not submitted again."""
    for job in jobs:
        if job.error is not None and job.state is JobState.FAILED:
            reason = job.error.message.removeprefix(f"{job.name}: ")
            err.print(Text.assemble((f"{job.name}: ", "yellow"), f"failed before: {reason}"), soft_wrap=True)


@dataclass(slots=True)
class Submitted:
    """What became of the recordings so far."""

    jobs: list[JobDetail] = field(default_factory=list)
    """Those of unchanged recordings too."""
    unchanged: int = 0
    refused: int = 0

    @property
    def new(self) -> int:
        """How many jobs were created."""
        return len(self.jobs) - self.unchanged


def conclude(
    server: Server, spool: Spool, jobs: Sequence[JobDetail], refused: int = 0, *, wait: bool
) -> None:
    """Print the submitted jobs, with `wait` once they have ended; exit with an error if one failed."""
    if wait and jobs:
        jobs = follow(spool, jobs, err)
    if server.as_json:
        print_json(jobs)
    elif wait:
        out.print(job_table(list(jobs)), crop=False)
    for job in jobs if wait and server.as_json else ():  # a table has them
        for warning in job.warnings:
            err.print(Text.assemble((f"{job.name}: ", "yellow"), warning), soft_wrap=True)
    exit_for(jobs if wait else (), refused)


def _expand(sources: Sequence[str]) -> Iterator[tuple[str | Path, str | None]]:
    """Addresses and files; files of a folder are named by their path in it, which distinguishes files of the
    same name in different folders."""
    for source in sources:
        if "://" in source:
            yield source, None
            continue
        folder = Path(source)
        recordings, skipped = recordings_under(folder)
        print_skipped(skipped)
        for path in recordings:
            place = path.relative_to(folder).as_posix()
            fits = path != folder and place.isprintable() and len(place) <= NAME_LENGTH
            yield path, place if fits else None


def _submit_all(
    spool: Spool,
    running: Running | None,
    recordings: Sequence[tuple[str | Path, str | None]],
    request: dict[str, Any],
    submitted: Submitted,
    *,
    quiet: bool,
) -> None:
    """Submit each recording, and note in `submitted` what became of it."""
    printed = ""
    for source, name in recordings:
        try:
            job, new = _submit_one(spool, running, source, request | ({"name": name} if name else {}))
        except (Refused, OSError) as error:
            if isinstance(error, Refused) and _refuses_all(error):
                raise
            # One recording that is refused or unreadable must not stop the others.
            submitted.refused += 1
            if isinstance(error, Refused):
                reason = in_flags(error.detail, Options)
            else:
                reason = f"cannot be read: {error.strerror}"
            err.print(Text.assemble((f"{source}: ", "red"), reason), soft_wrap=True)
            continue
        submitted.jobs.append(job)
        submitted.unchanged += not new
        if new and not quiet:
            out.print(f"{job.id}  {job.name}", markup=False, soft_wrap=True)
            if job.waiting_for and job.waiting_for != printed:
                printed = job.waiting_for
                err.print(Text(f"waiting for {printed}", style="yellow"), soft_wrap=True)


def _refuses_all(error: Refused) -> bool:
    """Whether every other recording would be refused as well, for its options or the key."""
    places = [fault["where"] for fault in error.errors] or [error.detail.partition(":")[0]]
    fields = {place.partition(".")[0] for place in places}
    of_all = {*SubmissionRequest.model_fields, *Options.model_fields} - {"name"}
    return error.code in ("unauthorized", "forbidden", "unknown_model") or bool(fields & of_all)


def _submit_one(
    spool: Spool, running: Running | None, source: str | Path, request: dict[str, Any]
) -> tuple[JobDetail, bool]:
    """The recording's job, and whether it is new."""
    if isinstance(source, str):
        return _send(spool, source, request)
    path = Path(os.path.realpath(source))  # which follows a loop of links forever, and raises nothing
    # Only a stack on this machine sees the same files; any other server gets an upload.
    roots = [Path(root) for root in running.source_roots] if running else []
    if any(path.is_relative_to(root) for root in roots):
        try:
            return _send(spool, path.as_uri(), request)
        except Refused as error:
            if error.code not in ("source_forbidden", "source_missing"):
                raise  # the key or the server's settings do not allow reading it there: upload it
    with show_upload(err, path.name) as sent:
        return _send(spool, path, request, sent)


def _send(
    spool: Spool, source: str | Path, request: dict[str, Any], sent: Sent | None = None
) -> tuple[JobDetail, bool]:
    if request.get("deduplicate"):
        return spool.submit_once(source, **request, sent=sent)
    return spool.submit(source, **request, sent=sent), True
