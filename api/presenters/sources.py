"""Watched folders and buckets as the API shows them. Pure."""

from collections.abc import Mapping

from spool.schemas.outputs import OutputOut
from spool.schemas.sources import SourceCounts, WatchedSourceOut
from spool.tables.sources import WatchedSource


def present_source(source: WatchedSource, counts: Mapping[str, int]) -> WatchedSourceOut:
    """A source, with how many versions of files it has in each state."""
    request, output = source.request, source.request.get("output")
    paused = source.paused_at is not None
    return WatchedSourceOut.of(
        source,
        state="paused" if paused else "failing" if source.error else "watching",
        options=request.get("options", {}),
        tags=request.get("tags", {}),
        output=None if output is None else OutputOut(**{"connection": None} | output),
        connection=request.get("connection"),
        counts=SourceCounts(**counts),
        next_listing_at=None if paused else source.due_at,
    )
