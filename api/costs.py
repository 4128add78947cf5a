"""The route of costs: what a period cost, by group, with the fleet's idle time beside it.

Knows days as people write them and how a report looks from outside; the sums are the store's.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, cast

from fastapi import Query, Response

from api.auth import CallerDep
from api.caller import Caller
from api.cost_files import cost_csv, cost_svg
from api.services import Services, ServicesDep
from spool.costs import money
from spool.errors import InvalidRequest
from spool.projection import MILLION, budget_state, per_audio_hour, projected
from spool.rates import CloudPrices
from spool.store.bills import CostReport, CostSums
from spool.store.cost_reports import cost_report, spent_since
from spool.wire.costs import (
    BudgetOut,
    CloudOut,
    CostFormat,
    CostReportOut,
    CostRowOut,
    GroupBy,
    ProjectionOut,
)
from spool.wire.jobs import Day

_DEFAULT_PERIOD = timedelta(days=30)


def costs(
    services: ServicesDep,
    caller: CallerDep,
    start: Annotated[
        Day | None, Query(alias="from", description="First UTC day; 30 days before `to` unless given.")
    ] = None,
    end: Annotated[
        Day | None, Query(alias="to", description="The UTC day after the last; tomorrow unless given.")
    ] = None,
    group_by: GroupBy = "day",
    tag: Annotated[
        str | None, Query(min_length=1, max_length=64, description="Which tag's values are the groups.")
    ] = None,
    form: Annotated[CostFormat, Query(alias="format", description="JSON, a table or a plot.")] = "json",
) -> Response:
    """The cost report of whole UTC days, from the ledger; of its own project where the key has one."""
    last = end or datetime.now(UTC).date() + timedelta(days=1)
    try:
        first = start or last - _DEFAULT_PERIOD
    except OverflowError:
        raise InvalidRequest("`to` lies too early in the calendar.") from None
    if (tag is None) == (group_by == "tag"):
        raise InvalidRequest("`tag` names a tag, and goes with `group_by=tag` alone.")
    with services.database.read() as tx:
        currency = services.settings.currency
        report = cost_report(tx, first, last, group_by, currency, caller.project, tag)
        month = spent_since(tx, datetime.now(UTC).date().replace(day=1)) if services.settings.budgets else {}
    shown = _shown(report, services, caller, month)
    if form == "csv":
        name = f"costs-{first}-{last}-by-{group_by}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(cost_csv(shown), headers=headers, media_type="text/csv; charset=utf-8")
    if form == "svg":
        return Response(cost_svg(shown), media_type="image/svg+xml")
    return Response(shown.model_dump_json(), media_type="application/json")


def _shown(report: CostReport, services: Services, caller: Caller, month: dict[str, int]) -> CostReportOut:
    return CostReportOut(
        start=report.start,
        end=report.end,
        group_by=cast("GroupBy", report.group_by),  # the routes offer fewer than the store knows
        currency=report.currency,
        rows=[_row(row.key, row.sums) for row in report.rows],
        total=_row("total", report.total),
        idle_seconds=report.idle_seconds,
        idle_cost=report.idle_cost,
        projection=_projection(report, services.settings.cloud_prices),
        budgets=[
            _budget(project, budget, money(month.get(project, 0)))
            for project, budget in sorted(services.settings.budgets.items())
            if caller.sees(project)
        ],
    )


def _row(key: str, sums: CostSums) -> CostRowOut:
    return CostRowOut(
        key=key,
        audio_seconds=sums.audio_seconds,
        engine_seconds=sums.engine_seconds,
        rtfx=sums.rtfx,
        billable=sums.billable_cost,
        wasted=sums.wasted_cost,
        per_audio_hour=per_audio_hour(sums.billable_cost, sums.audio_samples),
    )


def _projection(report: CostReport, clouds: CloudPrices) -> ProjectionOut | None:
    found = projected(report)
    if found is None:
        return None
    return ProjectionOut(
        per_audio_hour=found.per_audio_hour,
        per_million_hours=found.per_million_hours,
        basis=found.basis,
        clouds=[
            CloudOut(name=name, per_audio_hour=price, per_million_hours=price * MILLION)
            for name, price in sorted(clouds.per_audio_hour.items(), key=lambda one: (one[1], one[0]))
        ],
        clouds_as_of=clouds.as_of,
        clouds_currency=clouds.currency,
    )


def _budget(project: str, budget: Decimal, spent: Decimal) -> BudgetOut:
    return BudgetOut(
        project=project,
        budget=budget,
        spent=spent,
        share=float(spent / budget) if budget else None,
        state=budget_state(spent, budget),
    )
