"""The route of costs: what a period cost, by group, with the fleet's idle time beside it.

Knows days as people write them; the sums are the store's.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query

from api.auth import CallerDep
from api.schemas import CostReportOut, Day, GroupBy
from api.services import ServicesDep
from api.shown import shown_report
from spool.errors import InvalidRequest
from spool.store.costs import cost_report

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
) -> CostReportOut:
    """The cost report of whole UTC days, from the ledger; of its own project where the key has one."""
    last = end or datetime.now(UTC).date() + timedelta(days=1)
    try:
        first = start or last - _DEFAULT_PERIOD
    except OverflowError:
        raise InvalidRequest("`to` lies too early in the calendar.") from None
    with services.database.read() as tx:
        report = cost_report(tx, first, last, group_by, services.settings.currency, caller.project)
    return shown_report(report)
