"""Closures as the store returns them."""

from datetime import UTC, datetime

from spool.domain.archive.closures import Closure, Kind


def make_closure(
    kind: Kind, spans: list[list[float]], *, speaker: str | None = None, until: datetime | None = None
) -> Closure:
    """One that stands, of a job `job_1`."""
    return Closure(
        kind=kind,
        start_seconds=None,
        end_seconds=None,
        speaker=speaker,
        until=until,
        reason="",
        created_by="operator",
        id="clo_1",
        project="default",
        job_id="job_1",
        recording="job_1",
        content_sha256=None,
        transcript_sha256=None,
        speaker_name=None,
        spans=spans,
        created_at=datetime(2026, 11, 27, tzinfo=UTC),
        lifted_at=None,
        lifted_by=None,
    )
