"""A version of a transcript that replaces a stretch of another one: which, and what may be asked. Pure."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from spool.errors import InvalidRequest

SHORTEST_SECONDS = 0.1
ROUNDING_SECONDS = 1.0
"""So far an end may lie beyond the recording's, which people read off in whole seconds."""
OF_WHOLE = ("diarization", "witness", "drop_unsupported")
"""Options that concern the whole recording: a stretch keeps what its version has of them."""


class Stretch(BaseModel):
    """What a job decodes, in seconds of the recording; every other word is that of another job."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    job: str
    start: float
    end: float


def stretch_of(job_id: str, audio_seconds: float | None, start: float | None, end: float | None) -> Stretch:
    """The stretch from `start` to `end` of a job's recording. Raises InvalidRequest for times that are none
    of it."""
    if start is None or end is None:
        raise InvalidRequest("A stretch needs both a start and an end, in seconds.")
    length = end if audio_seconds is None else audio_seconds
    if start >= length:
        raise InvalidRequest(f"start: {start:g} s is beyond the end of the recording at {length:.1f} s.")
    if end > length + ROUNDING_SECONDS:
        raise InvalidRequest(f"end: {end:g} s is beyond the end of the recording at {length:.1f} s.")
    end = min(end, length)
    if end - start < SHORTEST_SECONDS:
        raise InvalidRequest(
            f"end: a stretch has at least {SHORTEST_SECONDS:g} s; this one is from {start:g} to {end:g} s."
        )
    return Stretch(job=job_id, start=round(start, 3), end=round(end, 3))


def refuse_of_whole(changes: Mapping[str, Any], kept_channels: str) -> None:
    """Raise InvalidRequest where the changed options do not go with a stretch."""
    if changes.get("align") is not None:
        raise InvalidRequest(
            "align: an existing transcript is aligned with a whole recording, not a stretch."
        )
    asked = next((name for name in OF_WHOLE if changes.get(name) not in (None, False)), None)
    if asked is not None:
        raise InvalidRequest(f"{asked}: a stretch keeps what its version has; ask for it afterwards.")
    if changes.get("channels", kept_channels) != kept_channels:
        raise InvalidRequest(f"channels: a stretch keeps those of its version, which are {kept_channels}.")
