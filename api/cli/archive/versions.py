"""The subcommands of versions: transcribe recordings again, list versions, compare them. Clients of the HTTP
API."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.archive.search import Filters
from api.cli.completion import JobId, complete_batch, complete_job
from api.cli.connection import Server, out, print_json
from api.cli.options import Transcription
from api.cli.submit import conclude
from api.cli.tables import (
    Cell,
    describe_options,
    describe_stretch,
    format_duration,
    format_money,
    format_time,
    table_of,
)
from api.cli.times import Time, seconds_of
from spool.client import Spool
from spool.domain.jobs import JobState
from spool.domain.spacing import join_words
from spool.errors import InvalidRequest
from spool.schemas.search import HitOut
from spool.schemas.versions import BatchDiff, ComparedJob, ComparedSums, ComparedWord, VersionOut


def rerun(
    *ids: Annotated[
        str, Parameter(name="ID", completer=complete_job, help="Jobs whose recordings to transcribe again.")
    ],
    options: Transcription = Transcription(),
    filters: Filters = Filters(),
    batch: Annotated[
        str | None, Parameter(completer=complete_batch, help="Every finished job of this batch.")
    ] = None,
    query: Annotated[
        str | None,
        Parameter(
            metavar="WORDS",
            help="Every recording that `spool search WORDS` finds; with --batch, only in that batch.",
        ),
    ] = None,
    created_from: Annotated[
        datetime | None, Parameter(help="With --query: jobs created on this day or later.")
    ] = None,
    created_to: Annotated[
        datetime | None, Parameter(help="With --query: jobs created before this day.")
    ] = None,
    spoken: Annotated[
        str | None,
        Parameter(metavar="CODE", help="With --query: only recordings mostly in this language."),
    ] = None,
    in_alternatives: Annotated[
        bool,
        Parameter(
            help="With --query: also search the alternatives that jobs kept.",
        ),
    ] = False,
    start: Annotated[
        Time,
        Parameter(name="--from", help="Replace only a stretch of one job: from here on, 12:30 or seconds."),
    ] = None,
    end: Annotated[Time, Parameter(name="--to", help="Where the stretch ends.")] = None,
    pool: Annotated[str | None, Parameter(help="Pool of workers. Default: any with the model.")] = None,
    wait: Annotated[bool, Parameter(help="Wait until the jobs have ended.")] = False,
    server: Server = Server(),
) -> None:
    """Transcribe recordings again, for example with a better model.

    Options that are not given keep their values. Transcripts are kept; `spool diff` compares them. With
    --from and --to the new version has the job's words, as they are corrected, outside the stretch. Repeating
    a command with --batch or --query continues where it was interrupted.
    """
    first, last = _stretch(ids, batch, query, start, end)
    if not ids and not batch and query is None:
        raise InvalidRequest("Name jobs, or a batch: spool rerun --batch BATCH --model MODEL.")
    created = {"created_from": created_from, "created_to": created_to}
    narrowed = filters.to_request() | created | {"language": spoken}
    if query is None and (in_alternatives or any(value is not None for value in narrowed.values())):
        raise InvalidRequest("Filters narrow a search down: name what to search for with --query WORDS.")
    asked = options.to_request(whole=False)
    digest = hashlib.sha256(json.dumps([asked, pool], sort_keys=True).encode()).hexdigest()[:32]
    with server.connect() as spool:
        if query is not None:
            hits = spool.search(query, **narrowed, batch=batch, alternatives=in_alternatives)
            chosen = _first_versions(spool, hits)
        else:
            chosen = [] if batch is None else [job.id for job in spool.jobs(batch=batch, state=JobState.DONE)]
        submitted = [spool.rerun(each, asked, start=first, end=last, pool=pool) for each in ids]
        submitted += [
            spool.rerun(job_id, asked, pool=pool, idempotency_key=f"rerun-{job_id}-{digest}")
            for job_id in chosen
        ]
        if not server.as_json:
            for job in submitted:
                out.print(Text.assemble(job.id, "  ", (f"version of {job.rerun_of}", "dim"), f"  {job.name}"))
        conclude(server, spool, submitted, wait=wait)


def _stretch(
    ids: Sequence[str], batch: str | None, query: str | None, start: str | None, end: str | None
) -> tuple[float | None, float | None]:
    """Where the part to replace begins and ends, in seconds; None for all of the recording."""
    if start is None and end is None:
        return None, None
    if start is None or end is None:
        raise InvalidRequest("Give both times: --from 12:30 --to 14:00.")
    if len(ids) != 1 or batch is not None or query is not None:
        raise InvalidRequest(
            "--from and --to replace a stretch of one job: spool rerun JOB --from 12:30 --to 14:00."
        )
    return seconds_of("--from", start), seconds_of("--to", end)


def versions(job_id: JobId, /, *, server: Server = Server()) -> None:
    """List the versions of a job's recording: models, words, costs."""
    with server.connect() as spool:
        listed = spool.versions(job_id)
    if server.as_json:
        print_json(listed)
        return
    titles = ("job", "state", "model", "decoder", "words", "replaced", "cost", "submitted by", "created")
    out.print(table_of(titles, map(_cells, listed.items)))
    if not listed.stored:
        out.print("The recording was deleted; it cannot be transcribed again.", style="dim")


def diff(
    base: Annotated[str | None, Parameter(name="ID", completer=complete_job, help="A job's id.")] = None,
    other: Annotated[
        str | None,
        Parameter(name="OTHER", completer=complete_job, help="Another version's id."),
    ] = None,
    /,
    *,
    batch: Annotated[
        str | None,
        Parameter(completer=complete_batch, help="Every job of this batch and its newest later version."),
    ] = None,
    model: Annotated[str | None, Parameter(help="With --batch: the newest version of this model.")] = None,
    sort: Annotated[
        Literal["time", "doubt"], Parameter(help="By time, or the least certain words first.")
    ] = "time",
    limit: Annotated[
        int, Parameter(validator=Number(gte=1, lte=10_000), help="Number of differences to list.")
    ] = 50,
    server: Server = Server(),
) -> None:
    """Compare two versions of a recording, or of a batch.

    Two jobs word by word; a batch with the newest later versions of its recordings, in numbers and sums.
    """
    if batch is None and (base is None or other is None):
        raise InvalidRequest("Name two jobs, or a batch: spool diff --batch BATCH.")
    with server.connect() as spool:
        if batch is not None:
            _compare_batch(server, spool, batch, model)
            return
        assert base is not None
        assert other is not None
        compared = spool.diff(base, other, sort=sort, limit=limit)
    if server.as_json:
        print_json(compared)
        return
    for each in compared.items:
        line = Text(f"{format_duration(each.start)}  ", "cyan")
        line.append(_words(each.base), "red").append("  →  ", "dim").append(_words(each.other), "green")
        out.print(line.append(f"  doubt {each.doubt:.2f}", "dim"), soft_wrap=True)
    noun = "difference" if compared.total == 1 else "differences"
    out.print(
        f"{compared.total} {noun}, {compared.edits} of {compared.words} words: {_percent(compared.wer)}"
    )


def _first_versions(spool: Spool, hits: Iterable[HitOut]) -> list[str]:
    """The oldest matching version of each recording that has hits, so that a repeated command finds the same
    one even after newer versions exist. Newest recording first, as in the hits."""
    first: dict[str, str] = {}
    for job_id in dict.fromkeys(hit.job for hit in hits):
        job = spool.job(job_id)
        recording = job.rerun_of or job.id
        first[recording] = min(first.get(recording, job_id), job_id)
    return list(first.values())


def _compare_batch(server: Server, spool: Spool, batch: str, model: str | None) -> None:
    """Compare every job of the batch with its later version, and sum up."""
    pages: list[BatchDiff] = []
    while not pages or pages[-1].next_cursor is not None:
        cursor = pages[-1].next_cursor if pages else None
        pages.append(spool.batch_diff_page(batch, model=model, cursor=cursor, limit=50))
    items = [item for page in pages for item in page.items]
    words, edits = sum(item.words for item in items), sum(item.edits for item in items)
    sums = ComparedSums(
        recordings=len(items),
        words=words,
        edits=edits,
        wer=edits / words if words else None,
        cost_before=sum((item.cost_before for item in items), Decimal(0)),
        cost_after=sum((item.cost_after for item in items), Decimal(0)),
        currency=pages[-1].sums.currency,
    )
    if server.as_json:
        print_json(BatchDiff(items=items, sums=sums, next_cursor=None))
        return

    def cells(item: ComparedJob) -> list[Cell]:
        costs = (format_money(each, sums.currency) for each in (item.cost_before, item.cost_after))
        return [item.base, item.other, item.name, item.words, item.edits, _percent(item.wer), *costs]

    titles = ("job", "later", "recording", "words", "changed", "WER", "cost", "cost later")
    out.print(table_of(titles, map(cells, items)))
    noun = "recording" if sums.recordings == 1 else "recordings"
    before, after = (format_money(each, sums.currency) for each in (sums.cost_before, sums.cost_after))
    out.print(
        f"{sums.recordings} {noun}, {sums.edits} of {sums.words} words changed: {_percent(sums.wer)}; cost "
        f"{before} before, {after} after"
    )


def _percent(wer: float | None) -> str:
    return "no words to compare with" if wer is None else f"WER {wer:.2%}"


def _cells(version: VersionOut) -> tuple[Cell, ...]:
    return (
        version.job,
        "deleted" if version.deleted else version.state.value,
        version.model,
        describe_options(version.options),
        version.words,
        "all" if version.stretch is None else describe_stretch(version.stretch),
        format_money(version.cost.billable, version.cost.currency),
        version.submitted_by,
        format_time(version.created_at),
    )


def _words(words: list[ComparedWord]) -> str:
    return join_words(word.text for word in words) or "—"
