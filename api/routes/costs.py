"""The route of costs: a period's costs by group, with the idle time of workers. The store computes the
sums."""

from datetime import timedelta
from typing import Annotated

from fastapi import Header, Query, Response

from api.auth.authentication import CallerDep
from api.presenters.costs import cost_csv, cost_svg, present_costs
from api.presenters.responses import json_response
from api.services import ServicesDep
from spool import clock
from spool.errors import InvalidRequest
from spool.schemas.common import Day
from spool.schemas.costs import CostFormat, CostReportOut, GroupBy
from spool.store.ledger.reports import cost_report, spent_since

_FORMATS: dict[str, CostFormat] = {"application/json": "json", "text/csv": "csv", "image/svg+xml": "svg"}
_DEFAULT_PERIOD = timedelta(days=30)


def get_costs(
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
    form: Annotated[
        CostFormat | None,
        Query(
            alias="format", description="JSON, a table or a plot. Default: what `Accept` prefers, or JSON."
        ),
    ] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Annotated[Response, CostReportOut]:
    """Show costs.

    The cost report of whole UTC days, from the ledger; of one project if the key has one.
    """
    last = end or clock.now().date() + timedelta(days=1)
    try:
        first = start or last - _DEFAULT_PERIOD
    except OverflowError:
        raise InvalidRequest("`to` lies too early in the calendar.") from None
    if group_by == "tag" and tag is None:
        raise InvalidRequest("group_by=tag needs `tag`: the name of the tag whose values are the groups.")
    if tag is not None and group_by != "tag":
        raise InvalidRequest(f"`tag` is only valid with group_by=tag, not with group_by={group_by}.")
    with services.database.read() as tx:
        currency = services.settings.currency
        report = cost_report(tx, first, last, group_by, currency, caller.project, tag)
        month = spent_since(tx, clock.now().date().replace(day=1)) if services.settings.budgets else {}
    shown = present_costs(report, services.settings, caller, month)
    form = form or _format_of(accept)
    if form == "csv":
        name = f"costs-{first}-{last}-by-{group_by}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(cost_csv(shown), headers=headers, media_type="text/csv; charset=utf-8")
    if form == "svg":
        return Response(cost_svg(shown), media_type="image/svg+xml")
    return json_response(shown)


def _format_of(accept: str) -> CostFormat:
    """The format that an `Accept` header ranks highest; JSON where it names none of them."""
    best: CostFormat = "json"
    highest = 0.0
    for item in accept.split(","):
        media, *parameters = (part.strip().lower() for part in item.split(";"))
        weights = [part.removeprefix("q=") for part in parameters if part.startswith("q=")]
        try:
            weight = float(weights[0]) if weights else 1.0
        except ValueError:
            continue
        if media in _FORMATS and weight > highest:
            best, highest = _FORMATS[media], weight
    return best
