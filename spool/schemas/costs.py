"""What goes over the wire about costs. Knows neither routes nor SQL."""

from datetime import date
from typing import Literal

from pydantic import BaseModel, Field

from spool.schemas.common import Money, with_example
from spool.schemas.examples import costs as examples

GroupBy = Literal["day", "project", "model", "worker", "pool", "key", "batch", "tag"]
CostFormat = Literal["json", "csv", "svg"]


class CostRowOut(BaseModel):
    """One group of the report. `key` is the day, a name, an id or a tag's value; empty for none."""

    key: str
    audio_seconds: float
    engine_seconds: float
    rtfx: float | None
    billable: Money
    wasted: Money
    per_audio_hour: Money | None = Field(None, description="Billable cost of an hour of audio.")


class CloudOut(BaseModel):
    """What somebody else charges."""

    name: str
    per_audio_hour: Money
    per_million_hours: Money


class ProjectionOut(BaseModel):
    """What a million hours of audio would cost as this period's did, beside what others charge."""

    per_audio_hour: Money = Field(description="Billable, wasted and idle, over the audio.")
    per_million_hours: Money
    basis: str
    clouds: list[CloudOut] = Field(description="From `SPOOL_CLOUD_PRICES`.")
    clouds_as_of: date
    clouds_currency: str


class BudgetOut(BaseModel):
    """A project's money in the present UTC month. Nothing stops when it is spent: it is told."""

    project: str
    budget: Money
    spent: Money
    share: float | None = Field(description="Of the budget; null where it is 0.")
    state: Literal["within", "near", "over"] = Field(description="`near` from 80 % on.")


class CostReportOut(BaseModel):
    """Cost of a period: by group, in all, and what the fleet's idle time was worth."""

    model_config = with_example(examples.COSTS)

    start: date = Field(description="First UTC day.")
    end: date = Field(description="The UTC day after the last.")
    group_by: GroupBy
    currency: str
    rows: list[CostRowOut]
    total: CostRowOut
    idle_seconds: float | None = Field(description="The fleet's; null in the report of one project.")
    idle_cost: Money | None
    projection: ProjectionOut | None = Field(None, description="Null where nothing was transcribed.")
    budgets: list[BudgetOut] = Field(default_factory=list, description="Of the projects that have one.")
