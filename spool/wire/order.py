"""What goes over the wire about who goes first: classes, deadlines, and why jobs are held."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from spool.order import PriorityName
from spool.quotas import HeldBy


def _moment(value: object) -> object:
    """A time as it is written; one without a zone is meant in UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError("must be a time such as 2026-11-20T18:00:00Z") from None
    if not isinstance(value, datetime):
        raise ValueError("must be a time such as 2026-11-20T18:00:00Z")
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the calendar") from None


Priority = Annotated[
    PriorityName,
    Field(description="Who goes first among the project's own jobs: high, then normal, then low."),
]
Deadline = Annotated[
    datetime,
    BeforeValidator(_moment),
    Field(
        description="When it should be done (ISO 8601). Within a priority the earliest deadline that can "
        "still be made goes first, before what has none."
    ),
]


class HeldOut(BaseModel):
    """Why jobs wait although workers may be free; they lose nothing by it."""

    by: HeldBy = Field(description="The quota of the project that is used up.")
    reason: str
    until: datetime | None = Field(description="When they go on; null where that depends on other jobs.")


class DeadlineOut(BaseModel):
    """A batch's deadline, and what the last reckoning says of it."""

    at: datetime
    state: Literal["unknown", "on_time", "late", "passed", "ended"] = Field(
        description="`late`: it cannot be made any more, by the measured rate, and moves nothing ahead."
    )
    expected_at: datetime | None = Field(description="When the batch will be done; null while unknown.")
    basis: str
