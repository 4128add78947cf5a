"""Formats jobs, costs and durations for a terminal. Pure: records in, text and tables out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TypeAlias

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spool import schemas
from spool.domain.jobs import JobState
from spool.domain.options import JobOptions

STATE_STYLES = {
    JobState.QUEUED: "dim",
    JobState.RUNNING: "cyan",
    JobState.DONE: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "yellow",
}


def format_duration(seconds: float | None) -> str:
    """A duration as people read it: `8.4 s`, `3:05`, `10:02:00`; a dash when unknown."""
    if seconds is None:
        return "—"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count_of(number: int, noun: str) -> str:
    """A number with its noun: `1 job`, `2 jobs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_money(amount: Decimal, currency: str) -> str:
    """An amount with two significant digits, and at least two decimals."""
    if not amount:
        return f"0.00 {currency}"
    decimals = max(2, 1 - amount.adjusted())
    return f"{amount:.{decimals}f} {currency}"


def format_speed(rtfx: float | None) -> str:
    """The real-time factor, as `RTFx 12.3`."""
    return "RTFx —" if rtfx is None else f"RTFx {rtfx:.1f}"


def describe_hold(held: schemas.HeldOut) -> str:
    """Why jobs wait, and until when."""
    return held.reason if held.until is None else f"{held.reason} They resume at {format_time(held.until)}."


def describe_deadline(job: schemas.JobOut) -> str:
    """The deadline, and whether it is out of reach."""
    return f"{format_time(job.deadline)}{', out of reach' if job.late else ''}"


_SHORT = 24
Cell: TypeAlias = "str | int | Text | None"


def table_of(titles: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """A table with a row on each line, numbers to the right. On a narrow terminal the first column and short
    cells stay whole, and words of the last column are put below each other."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title, no_wrap=True)
    for cells in rows:
        texts = list(map(_to_text, cells))
        table.add_row(*texts)
        for column, cell, text in zip(table.columns, cells, texts, strict=True):
            if isinstance(cell, int) or text.justify == "right":
                column.justify = "right"
            if len(text) > _SHORT and column is not table.columns[0]:
                column.no_wrap, column.overflow, column.min_width = False, "fold", None
            elif column.no_wrap:
                column.min_width = max(column.min_width or 0, len(text))
    last = table.columns[-1]
    if last.no_wrap and last is not table.columns[0]:
        # A table that is too wide is cut at its right edge, which would take letters off this column.
        words = (word for cell in last.cells for word in str(cell).split())
        last.no_wrap, last.overflow, last.min_width = False, "fold", max(map(len, words), default=None)
    return table


def right(text: str) -> Text:
    """A cell that stands to the right, as numbers do."""
    return Text(text, justify="right")


def sheet_of(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """The facts about one thing, each on a line."""
    sheet = Table(box=None, show_header=False, pad_edge=False)
    sheet.add_column(style="dim", no_wrap=True)
    sheet.add_column(overflow="fold")
    for name, value in rows:
        sheet.add_row(name, _to_text(value))
    return sheet


def _to_text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text("" if cell is None else str(cell))


def job_table(jobs: list[schemas.JobOut]) -> RenderableType:
    """Jobs, one per line, followed by the reasons and the recording's location for those that failed, wait or
    are cut off; print it with `crop=False`, so that long paths stay whole."""
    reasons = any(job.error or job.waiting_for or job.complete is False or job.warnings for job in jobs)
    parts: list[RenderableType] = []
    for job in jobs:
        if not parts or reasons:
            table = _columns(header=not parts, name="" if reasons else "name")
            parts.append(table)
        fraction = job.progress.fraction
        table.add_row(
            job.id,
            _state(job),
            format_duration(job.progress.audio_seconds),
            "—" if fraction is None else f"{fraction:.0%}",
            "" if reasons else _name(job),
        )
        if reasons:
            parts += _reasons(job)
    return Group(*parts or [_columns(header=True, name="name")])


def _columns(*, header: bool, name: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=header)
    table.add_column("job", no_wrap=True)
    table.add_column("state", no_wrap=True, min_width=9)
    table.add_column("audio", justify="right", no_wrap=True, min_width=8)
    table.add_column("done", justify="right", no_wrap=True, min_width=4)
    # The only column that may shrink: without a complete id a line is useless.
    table.add_column(name)
    return table


def _state(job: schemas.JobOut) -> Text:
    if job.waiting_for:
        return Text("waiting", style="yellow")
    return Text("held" if job.held else job.state.value, style=STATE_STYLES[job.state])


def _name(job: schemas.JobOut) -> Text:
    return _mark_reuse(Text(job.name, no_wrap=True, overflow="ellipsis"), job)


def _mark_reuse(text: Text, job: schemas.JobOut) -> Text:
    return text.append("  reused, free of charge", style="dim") if job.reused_from else text


def _reasons(job: schemas.JobOut) -> list[RenderableType]:
    """Where the recording is, uncut so that it can be copied, and remarks on the job."""
    where = _name(job) if job.source.kind in ("upload", "live") else _mark_reuse(Text(job.source.uri), job)
    lines: list[RenderableType] = [Text.assemble("  ", where, no_wrap=True, overflow="ignore")]
    if job.error is not None:
        message = job.error.message.removeprefix(f"{job.name}: ")
        retrying = job.state is JobState.QUEUED
        again, style = ("; retrying automatically", "yellow") if retrying else ("", "red")
        message = message.rstrip(".") if retrying else message
        lines.append(indent(Text(f"{message}{again} ({job.error.code})", style=style)))
    elif job.complete is False:
        lines.append(indent(describe_length(job)))
    elif job.waiting_for:
        lines.append(indent(Text(f"waiting for {job.waiting_for}", style="yellow")))
    return lines + [indent(Text(warning, style="yellow")) for warning in job.warnings]


def describe_length(job: schemas.JobOut) -> Text:
    """Whether the recording is complete, according to its header."""
    if job.complete is None:
        return Text("not stated by the file")
    if job.complete:
        return Text("complete: as long as the file's header states" if job.expected_seconds else "complete")
    if job.expected_seconds is None or job.missing_seconds is None:
        return Text("cut off; the file does not state how much is missing", style="yellow")
    missing = f"{format_duration(job.missing_seconds)} of {format_duration(job.expected_seconds)} are missing"
    return Text(f"cut off: {missing}", style="yellow")


def describe_coverage(job: schemas.JobOut) -> str:
    """How the recording's samples were used."""
    parts = [f"{job.coverage or 0:.2%} of the samples in exactly one chunk"]
    if job.decoded_seconds is not None:
        parts.append(f"{format_duration(job.decoded_seconds)} decoded")
        parts.append(f"{format_duration(job.skipped_seconds)} passed over as silence or without speech")
    if job.speech_coverage is not None:
        parts.append(f"{1 - job.speech_coverage:.1%} of the detected speech without words")
    if job.words_without_evidence is not None:
        parts.append(f"{job.words_without_evidence:,} words that the sound does not support")
    if job.speech_without_words:
        parts.append(f"{format_duration(job.speech_without_words)} of clear speech without words")
    return ", ".join(parts)


def describe_options(options: JobOptions) -> str:
    """How the words of a job are found."""
    return options.decoder if options.align is None else "aligned text"


def job_sheet(job: schemas.JobDetail) -> Table:
    """Everything about one job."""
    cost = job.cost
    billable, wasted = (format_money(each, cost.currency) for each in (cost.billable, cost.wasted))
    done = f"{format_duration(job.progress.done_seconds)} of {format_duration(job.progress.audio_seconds)}"
    rows: list[tuple[str, str | Text]] = [
        ("job", job.id),
        ("name", Text(job.name)),
        ("state", Text(job.state.value, style=STATE_STYLES[job.state])),
        ("source", Text(job.source.uri)),
        ("project", job.project),
        *((("priority", job.priority),) if job.priority != "normal" else ()),
        *((("deadline", describe_deadline(job)),) if job.deadline else ()),
        *((("held", Text(describe_hold(job.held))),) if job.held else ()),
        *((("waiting for", Text(job.waiting_for, style="yellow")),) if job.waiting_for else ()),
        *((("requires", Text(str(job.requires))),) if job.requires else ()),
        ("model", Text(f"{job.options.model}, {describe_options(job.options)}")),
        *(
            (("replaces", Text(f"{describe_stretch(job.stretch)} of {job.stretch.job}")),)
            if job.stretch
            else ()
        ),
        ("audio", done),
        ("attempts", str(job.attempts)),
        ("created", format_time(job.times.created_at)),
        ("started", format_time(job.times.started_at)),
        ("finished", format_time(job.times.finished_at)),
        ("engine", f"{format_duration(cost.engine_seconds)}, {format_speed(cost.rtfx)}"),
        ("cost", f"{billable} (and {wasted} wasted)"),
    ]
    if job.deleted is not None:
        gone = {"recording": job.deleted.source, "transcript": job.deleted.transcript}
        deletions = (f"{what} on {format_time(at)}" for what, at in gone.items() if at)
        rows.append(("deleted", ", ".join(deletions)))
    if job.state is JobState.DONE:
        rows.append(("length", describe_length(job)))
        rows.append(("coverage", describe_coverage(job)))
    rows += [("warning", Text(warning, style="yellow")) for warning in job.warnings]
    if job.words is not None:
        rows.append(("words", str(job.words)))
    if job.speakers is not None:
        called = ", ".join(each.name or each.label for each in job.speakers)
        rows.append(("speakers", Text(called or "nobody speaks")))
    if job.output is not None:
        rows.append(("output", Text(f"{', '.join(job.output.formats)} below {job.output.prefix}")))
    if job.undelivered is not None:
        rows.append(("undelivered", Text(job.undelivered, "red")))
    rows += [(f"  {each.format}", _file_words(each)) for each in job.exports]
    if job.error is not None:
        rows.append(("error", Text(f"{job.error.message} ({job.error.code})", style="red")))
    return sheet_of(rows)


def describe_stretch(stretch: schemas.StretchOut) -> str:
    """From when to when it replaces words."""
    return f"{format_duration(stretch.start)} to {format_duration(stretch.end)}"


def _file_words(file: schemas.ExportOut) -> Text:
    """Where a file of the output is, or why it is not there."""
    if file.state == "written":
        return Text(file.uri or "", "green")
    again = f"; next attempt at {format_time(file.next_try_at)}" if file.next_try_at and file.error else ""
    reason = f": {file.error}" if file.error and file.state == "replaced" else ""
    return Text(f"{file.state}{reason}{again}", "yellow" if file.state == "pending" else "red")


def speaker_table(speakers: list[schemas.HeardSpeakerOut]) -> Table:
    """The speakers of a transcript, one per line, with the voices that they resemble."""
    likely = any(each.matches for each in speakers)

    def cells(each: schemas.HeardSpeakerOut) -> list[Cell]:
        matches = ", ".join(f"{match.name} ({match.similarity:.2f})" for match in each.matches)
        speaks = right(format_duration(each.talk_seconds))
        return [each.label, each.name or "—", speaks, each.words, *([matches] if likely else [])]

    titles = ("speaker", "name", "speaks", "words", *(["sounds like"] if likely else []))
    return table_of(titles, map(cells, speakers))


def cost_table(report: schemas.CostReportOut) -> RenderableType:
    """The report's groups, their total, and the fleet's idle time."""
    titles = (report.group_by, "audio", "engine", "RTFx", "billable", "wasted")
    table = table_of(titles, ((row.key or "—", *_amounts(row, report.currency)) for row in report.rows))
    for column in table.columns[1:]:
        column.justify = "right"
    if len(report.rows) != 1:
        table.add_row("total", *_amounts(report.total, report.currency), style="bold")
    if report.idle_cost is not None:
        idle = format_money(report.idle_cost, report.currency)
        table.add_row("idle", "", format_duration(report.idle_seconds), "", idle, "", style="dim")
    if not report.budgets:
        return table
    return Group(table, *(_budget_line(one, report.currency) for one in report.budgets))


def _budget_line(budget: schemas.BudgetOut, currency: str) -> Text:
    share = "" if budget.share is None else f" ({budget.share:.0%})"
    spent, limit = format_money(budget.spent, currency), format_money(budget.budget, currency)
    words = f"{budget.project}: {spent} of {limit} this month"
    styles = {"within": "dim", "near": "yellow", "over": "bold red"}
    return Text(f"{words}{share}, {budget.state}", style=styles[budget.state])


def indent(*parts: RenderableType) -> Padding:
    """Indented by two columns."""
    return Padding(Group(*parts), (0, 0, 0, 2), expand=False)


def _amounts(row: schemas.CostRowOut, currency: str) -> list[str]:
    rate = "—" if row.rtfx is None else f"{row.rtfx:.1f}"
    return [
        format_duration(row.audio_seconds),
        format_duration(row.engine_seconds),
        rate,
        format_money(row.billable, currency),
        format_money(row.wasted, currency),
    ]


def format_time(at: datetime | None) -> str:
    """A time in this machine's zone; a dash for None."""
    return "—" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
