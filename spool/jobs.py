"""What a job is allowed to be: its states, the legal moves between them, its options.

Pure: no SQL and no clock. `spool.store` refuses in SQL whatever `MOVES` does not list.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class JobState(StrEnum):
    """Where a job stands. `queued → running → done | failed | cancelled`."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether only a person can move the job on from here."""
        return self in TERMINAL


TERMINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})

MOVES: frozenset[tuple[JobState, JobState]] = frozenset(
    {
        (JobState.QUEUED, JobState.RUNNING),  # a worker claims it
        (JobState.QUEUED, JobState.CANCELLED),
        (JobState.QUEUED, JobState.FAILED),  # set aside: too many attempts ended with a dead process
        (JobState.RUNNING, JobState.QUEUED),  # the lease ran out, or the worker drains or yields
        (JobState.RUNNING, JobState.DONE),
        (JobState.RUNNING, JobState.FAILED),
        (JobState.RUNNING, JobState.CANCELLED),
        (JobState.FAILED, JobState.QUEUED),  # a person retries
        (JobState.CANCELLED, JobState.QUEUED),
    }
)


def may_move(old: JobState, new: JobState) -> bool:
    """Whether a job in state `old` may go to state `new`."""
    return (old, new) in MOVES


class JobOptions(BaseModel):
    """What the submitter chose; together with audio and model it alone decides the transcript (law 7)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Annotated[
        str, Field(min_length=1, max_length=200, description="A model name from the settings.")
    ] = "demo"
    decoder: Annotated[Literal["greedy", "beam"], Field(description="Search over the model's output.")] = (
        "greedy"
    )
    beam: Annotated[
        int, Field(ge=1, le=32, strict=True, description="Hypotheses kept by the beam decoder.")
    ] = 4
    channels: Annotated[
        Literal["mix", "separate"], Field(description="Mix all channels, or transcribe each one by itself.")
    ] = "mix"


def queue_name(pool: str, worker: str | None = None) -> str:
    """The queue of a pool (`spool.cpu`), or of one worker of it by name (`spool.cpu.at.mini-3`)."""
    return f"spool.{pool}.at.{worker}" if worker else f"spool.{pool}"
