"""The calls that report: costs, workers, models, whether the server is ready."""

from datetime import date

from spool.client.exchange import Ask, Flow, read, read_list
from spool.schemas.costs import CostReportOut, GroupBy
from spool.schemas.fleet import DefaultModel, ModelDetail, ModelList, ModelOut, Overview, Readiness, WorkerOut


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
    query = {"from": start, "to": end, "group_by": group_by, "tag": tag}
    return read(Ask("GET", "/v1/costs", query), CostReportOut)


def workers() -> Flow[list[WorkerOut]]:
    """Every worker that registered, the most recently seen first; requires a key with the scope `admin`."""
    return read_list(Ask("GET", "/v1/workers"), WorkerOut)


def models() -> Flow[list[ModelOut]]:
    """The models that jobs may name."""
    return (yield from read(Ask("GET", "/v1/models"), ModelList)).items


def set_default_model(name: str) -> Flow[DefaultModel]:
    """Set the model of jobs that name none; requires a key with the scope `admin`."""
    return read(Ask("PUT", "/v1/models/default", json={"name": name}), DefaultModel)


def model(name: str) -> Flow[ModelDetail]:
    """One model that jobs may name."""
    return read(Ask("GET", f"/v1/models/{name}"), ModelDetail)


def overview() -> Flow[Overview]:
    """What is queued, running and ended, and the current day's totals."""
    return read(Ask("GET", "/v1/overview"), Overview)


def readiness() -> Flow[Readiness]:
    """Whether every part behind the server answers; also returned if one does not."""
    return read(Ask("GET", "/readyz", any_status=True), Readiness)
