"""The schemas of cost reports."""

from datetime import date
from typing import Literal

from pydantic import Field

from spool.schemas.common import AnswerModel, Money

GroupBy = Literal["day", "project", "model", "worker", "pool", "key", "batch", "tag"]
CostFormat = Literal["json", "csv", "svg"]


class CostRowOut(AnswerModel):
    """One group of the report. `key` is the day, a name, an id or a tag's value; empty without one."""

    key: str
    audio_seconds: float
    engine_seconds: float
    rtfx: float | None
    billable: Money = Field(validation_alias="billable_cost")
    wasted: Money = Field(validation_alias="wasted_cost")
    per_audio_hour: Money | None = Field(None, description="Billable cost of an hour of audio.")


class CloudOut(AnswerModel):
    """A cloud service's price."""

    name: str
    per_audio_hour: Money
    per_million_hours: Money


class ProjectionOut(AnswerModel):
    """The cost of a million hours of audio at this period's cost, beside the prices of cloud services."""

    per_audio_hour: Money = Field(description="Billable, wasted and idle cost for each hour of audio.")
    per_million_hours: Money
    basis: str
    clouds: list[CloudOut] = Field(description="From `SPOOL_CLOUD_PRICES`.")
    clouds_as_of: date
    clouds_currency: str


class BudgetOut(AnswerModel):
    """A project's spending in this UTC month. A spent budget is reported and stops nothing."""

    project: str
    budget: Money
    spent: Money
    share: float | None = Field(description="Share of the budget that is spent; null for a budget of 0.")
    state: Literal["within", "near", "over"] = Field(description="`near` from 80 % on.")


class CostReportOut(AnswerModel):
    """A period's costs: by group, in total, and the cost of the fleet's idle time."""

    start: date = Field(description="First UTC day.")
    end: date = Field(description="The UTC day after the last.")
    group_by: GroupBy
    currency: str
    rows: list[CostRowOut]
    total: CostRowOut
    idle_seconds: float | None = Field(description="The fleet's; null for one project.")
    idle_cost: Money | None
    projection: ProjectionOut | None = Field(None, description="Null if nothing was transcribed.")
    budgets: list[BudgetOut] = Field(default_factory=list, description="Of the projects that have a budget.")
