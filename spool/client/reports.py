"""The calls that report: costs, workers, models, whether the server is ready."""

from __future__ import annotations

from datetime import date

from spool import schemas
from spool.client.exchange import Ask, Flow, read, read_list


def costs(
    *,
    start: date | None = None,
    end: date | None = None,
    group_by: schemas.GroupBy = "day",
    tag: str | None = None,
) -> Flow[schemas.CostReportOut]:
    """The costs of a period: whole UTC days from `start` to before `end`, by default the last 30 days.

    `tag` names the tag of `group_by="tag"`.
    """
    query = {"from": start, "to": end, "group_by": group_by, "tag": tag}
    return read(Ask("GET", "/v1/costs", query), schemas.CostReportOut)


def workers() -> Flow[list[schemas.WorkerOut]]:
    """Every worker that registered, the most recently seen first; requires a key with the scope `admin`."""
    return read_list(Ask("GET", "/v1/workers"), schemas.WorkerOut)


def models() -> Flow[list[schemas.ModelOut]]:
    """The models that jobs may name."""
    return (yield from read(Ask("GET", "/v1/models"), schemas.ModelList)).items


def set_default_model(name: str) -> Flow[schemas.DefaultModel]:
    """Set the model of jobs that name none; requires a key with the scope `admin`."""
    return read(Ask("PUT", "/v1/models/default", json={"name": name}), schemas.DefaultModel)


def model(name: str) -> Flow[schemas.ModelDetail]:
    """One model that jobs may name."""
    return read(Ask("GET", f"/v1/models/{name}"), schemas.ModelDetail)


def overview(*, batches: int = 0) -> Flow[schemas.Overview]:
    """What is queued, running and ended, and the current day's totals; `collections` has the projects
    and this many of their newest batches."""
    return read(Ask("GET", "/v1/overview", params={"batches": batches}), schemas.Overview)


def readiness() -> Flow[schemas.Readiness]:
    """Whether every part behind the server answers; also returned if one does not."""
    return read(Ask("GET", "/readyz", any_status=True), schemas.Readiness)
