"""Batches as the API shows them. Pure: one function for each record, no queries."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from spool import clock
from spool.domain.estimates import Outlook, outlook
from spool.domain.jobs import JobState
from spool.domain.pricing import money, rtfx
from spool.domain.priority import PRIORITY_NAMES
from spool.domain.quotas import Hold
from spool.schemas.batches import (
    BatchAudioOut,
    BatchCostOut,
    BatchDetail,
    BatchOut,
    BatchSpeedOut,
    BatchState,
)
from spool.schemas.jobs import DeadlineOut
from spool.store.batch_progress import BatchProgress
from spool.tables.batches import Batch


def present_batch(
    batch: Batch, counts: Mapping[JobState, int], holds: Mapping[str, Hold] | None = None
) -> BatchOut:
    """A batch with its jobs by state; `holds` by project."""
    return BatchOut.of(batch, **_differing(batch, counts, holds))


def present_batch_detail(
    batch: Batch,
    progress: BatchProgress,
    currency: str,
    holds: Mapping[str, Hold] | None = None,
    waiting_for: Sequence[str] = (),
) -> BatchDetail:
    """A batch with its progress, and its expected time and cost."""
    forecast = outlook(progress)
    return BatchDetail.of(
        batch,
        **_differing(batch, progress.counts, holds),
        waiting_for=list(waiting_for),
        reused=progress.reused,
        incomplete=progress.incomplete,
        audio=BatchAudioOut.of(forecast, done_seconds=progress.done_seconds),
        speed=BatchSpeedOut(
            rtfx_now=rtfx(progress.recent_audio_seconds, progress.recent_engine_seconds), pace=forecast.pace
        ),
        time=forecast,
        cost=_cost(progress, forecast, currency),
    )


def _differing(
    batch: Batch, counts: Mapping[JobState, int], holds: Mapping[str, Hold] | None
) -> dict[str, Any]:
    """The fields of the answer that are not attributes of the batch."""
    return {
        "state": _state(batch, counts),
        "lines": batch,
        "counts": counts,
        "times": batch,
        "priority": PRIORITY_NAMES[batch.priority],
        "deadline": _deadline(batch, counts),
        "held": (holds or {}).get(batch.project) if counts.get(JobState.QUEUED) else None,
    }


def _deadline(batch: Batch, counts: Mapping[JobState, int]) -> DeadlineOut | None:
    if batch.deadline is None:
        return None
    basis, expected = batch.expected_basis or "Not computed yet.", batch.expected_at
    state: Literal["unknown", "on_time", "late", "passed", "ended"] = "on_time" if expected else "unknown"
    if _state(batch, counts) == "ended":
        state, basis, expected = "ended", "No job is waiting or running.", None
    elif batch.deadline <= clock.now():
        state = "passed"
    elif batch.late:
        state = "late"
    return DeadlineOut(at=batch.deadline, state=state, expected_at=expected, basis=basis)


def _state(batch: Batch, counts: Mapping[JobState, int]) -> BatchState:
    if batch.closed_at is None and batch.cancelled_at is None:
        return "receiving"
    is_open = any(number for state, number in counts.items() if not state.terminal)
    return "running" if is_open else "ended"


def _cost(progress: BatchProgress, forecast: Outlook, currency: str) -> BatchCostOut:
    return BatchCostOut(
        billable=money(progress.billable_nanos),
        wasted=money(progress.wasted_nanos),
        expected=None if forecast.expected_nanos is None else money(forecast.expected_nanos),
        currency=currency,
        basis=forecast.cost_basis,
    )
