"""The calls that report: costs, workers, models, whether the server is ready."""

from datetime import date

from spool.client.exchange import Ask, Flow, read
from spool.schemas.common import ListOf
from spool.schemas.costs import CostReportOut, GroupBy
from spool.schemas.fleet import DefaultModel, ModelList, ModelOut, Readiness, WorkerOut


def costs(
    *,
    start: date | None = None,
    end: date | None = None,
    group_by: GroupBy = "day",
    tag: str | None = None,
) -> Flow[CostReportOut]:
    """The costs of a period: whole UTC days from `start` to before `end`, by default the last 30 days.

    `tag` names the tag of `group_by="tag"`.
    """
    query = {
        "from": start.isoformat() if start else None,
        "to": end.isoformat() if end else None,
        "group_by": group_by,
        "tag": tag,
    }
    return (yield from read(Ask("GET", "/v1/costs", query), CostReportOut))


def workers() -> Flow[list[WorkerOut]]:
    """Every worker that registered, the most recently seen first; requires a key with the scope `admin`."""
    return (yield from read(Ask("GET", "/v1/workers"), ListOf[WorkerOut])).items


def models() -> Flow[list[ModelOut]]:
    """The models that jobs may name."""
    return (yield from read(Ask("GET", "/v1/models"), ModelList)).items


def set_default_model(name: str) -> Flow[DefaultModel]:
    """Set the model of jobs that name none; requires a key with the scope `admin`."""
    return (yield from read(Ask("PUT", "/v1/models/default", json={"name": name}), DefaultModel))


def readiness() -> Flow[Readiness]:
    """Whether every part behind the server answers; also returned if one does not."""
    return (yield from read(Ask("GET", "/readyz", any_status=True), Readiness))
