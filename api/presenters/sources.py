"""Watched folders and buckets as the API shows them. Pure: one function for each record, no queries."""

from collections.abc import Mapping

from spool.schemas.outputs import OutputOut
from spool.schemas.sources import SourceCounts, SourceItemOut, SourceOut
from spool.store.archive.sources import Item, WatchedSource


def present_source(source: WatchedSource, counts: Mapping[str, int]) -> SourceOut:
    """A source, with how many versions of files it has in each state."""
    output = source.request.get("output")
    paused = source.paused_at is not None
    return SourceOut(
        id=source.id,
        name=source.name,
        project=source.project,
        source=source.address,
        state="paused" if paused else "failing" if source.error else "watching",
        error=source.error,
        failing_since=source.failing_since,
        every_seconds=source.every_seconds,
        settle_seconds=source.settle_seconds,
        options=source.request.get("options", {}),
        tags=source.request.get("tags", {}),
        output=None if output is None else OutputOut.model_validate({"connection": None} | output),
        connection=source.request.get("connection"),
        counts=SourceCounts(**counts),
        files=source.files,
        created_at=source.created_at,
        paused_at=source.paused_at,
        listed_at=source.listed_at,
        next_listing_at=None if paused else source.due_at,
    )


def present_item(item: Item) -> SourceItemOut:
    """A version of a file."""
    return SourceItemOut(
        path=item.place,
        version=item.version,
        state=item.state,
        reason=item.reason,
        job=item.job_id,
        seen_at=item.created_at,
    )
