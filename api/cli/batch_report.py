"""How a batch is printed, and the exit code that it gives a command."""

from collections.abc import Iterator

from rich.text import Text

from api.cli.connection import Exit, Server
from api.cli.tables import describe_hold, format_duration, format_money, format_time, sheet_of
from spool.domain.jobs import JobState
from spool.schemas.batches import BatchDetail


def exit_for_batch(batch: BatchDetail) -> None:
    """Exit with an error if a line was invalid, or if a job failed or was cancelled."""
    if batch.lines.bad or batch.counts[JobState.FAILED] or batch.counts[JobState.CANCELLED]:
        raise SystemExit(Exit.FAILED)


def show_batch(server: Server, batch: BatchDetail) -> None:
    """Print it as a sheet, or as JSON."""
    facts = (
        ("batch", batch.id),
        ("name", batch.name),
        ("state", batch.state),
        ("jobs", ", ".join(f"{number} {state}" for state, number in batch.counts.items() if number)),
        ("invalid lines", str(batch.lines.bad)),
        *((("unchanged", f"{batch.lines.unchanged} (submitted before)"),) if batch.lines.unchanged else ()),
        *((("skipped files", str(batch.lines.skipped)),) if batch.lines.skipped else ()),
        ("reused", str(batch.reused)),
        *((("cut off", f"{batch.incomplete} (see `complete` in the results)"),) if batch.incomplete else ()),
        *_progress_of(batch),
        *_order_of(batch),
    )
    server.show(batch, sheet_of((title, Text(value)) for title, value in facts))


def _progress_of(batch: BatchDetail) -> Iterator[tuple[str, str]]:
    cost, done = batch.cost, f"{format_duration(batch.audio.done_seconds)} done"
    if batch.state == "ended":
        yield "audio", done
        yield "cost", format_money(cost.billable, cost.currency)
        return
    expected = (
        "total unknown"
        if cost.expected is None
        else f"{format_money(cost.expected, cost.currency)} expected in total"
    )
    yield "audio", f"{done}, {format_duration(batch.audio.left_seconds)} left"
    yield "RTFx now", "—" if batch.speed.rtfx_now is None else f"{batch.speed.rtfx_now:.1f}"
    yield "time left", f"{format_duration(batch.time.left_seconds)} ({batch.time.basis})"
    billable = format_money(cost.billable, cost.currency)
    yield "cost", f"{billable} so far, {expected} ({cost.basis})"


def _order_of(batch: BatchDetail) -> Iterator[tuple[str, str]]:
    if batch.priority != "normal":
        yield "priority", batch.priority
    if batch.deadline is not None:
        at = batch.deadline
        yield "deadline", f"{format_time(at.at)}, {at.state.replace('_', ' ')} ({at.basis})"
    if batch.held is not None:
        yield "held", describe_hold(batch.held)
    for reason in batch.waiting_for:
        yield "waiting for", reason
