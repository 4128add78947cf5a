"""Cost reports over HTTP: groups, tables, plots, projections and budgets."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from ops.testbed.running_api import Live, file_job, problem
from spool.domain import Scope
from spool.settings import Settings
from spool.store import create_key


@pytest.fixture
def settings(
    make_settings: Callable[..., Settings], recordings: Path, sqlite_url: str, redis_url: str
) -> Settings:
    return make_settings(
        database_url=sqlite_url,
        redis_url=redis_url,
        source_roots=(recordings,),
        budgets={"=cmd": "1", "default": "0.0005", "empty": "0"},
        cloud_prices='{"as_of": "2026-11-01", "per_audio_hour": {"A cloud": 0.36}}',
    )


def done(http: httpx.Client, live: Live, recordings: Path, **request: object) -> str:
    job = http.post("/v1/jobs", json=file_job(recordings, **request)).json()["id"]
    live.work().finish(job)
    return str(job)


@pytest.mark.parametrize("group_by", ["day", "project", "model", "worker", "pool", "key", "batch"])
def test_every_grouping_sums_to_the_total(
    http: httpx.Client, live: Live, recordings: Path, group_by: str
) -> None:
    for _ in range(2):
        done(http, live, recordings)
    report = http.get("/v1/costs", params={"group_by": group_by}).json()
    assert report["group_by"] == group_by
    assert sum(row["engine_seconds"] for row in report["rows"]) == report["total"]["engine_seconds"] == 1.0
    assert report["total"]["billable"] == "0.001"


def test_by_tag_rows_are_its_values(http: httpx.Client, live: Live, recordings: Path) -> None:
    done(http, live, recordings, tags={"box": "7", "reel": "x"})
    done(http, live, recordings, tags={"box": "=HYPERLINK(1)"})
    done(http, live, recordings)
    asked = {"group_by": "tag", "tag": "box"}
    rows = http.get("/v1/costs", params=asked).json()["rows"]
    assert [(row["key"], row["billable"]) for row in rows] == [
        ("", "0.0005"),
        ("7", "0.0005"),
        ("=HYPERLINK(1)", "0.0005"),
    ]
    table = list(csv.reader(io.StringIO(http.get("/v1/costs", params=asked | {"format": "csv"}).text)))
    assert [line[0] for line in table] == ["tag", "", "7", "'=HYPERLINK(1)", "total"], "no formula runs"
    problem(http.get("/v1/costs", params={"group_by": "tag"}), 422, "invalid_request")
    problem(http.get("/v1/costs", params={"tag": "box"}), 422, "invalid_request")


def test_a_table_and_a_plot_say_the_same(http: httpx.Client, live: Live, recordings: Path) -> None:
    done(http, live, recordings, project="a<b".replace("<", "-"))
    answer = http.get("/v1/costs", params={"group_by": "project", "format": "csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in answer.headers["content-disposition"]
    head, row, total = csv.reader(io.StringIO(answer.text))
    assert dict(zip(head, row, strict=True)) == {
        "project": "a-b",
        "audio_hours": "0.000417",
        "engine_hours": "0.000139",
        "rtfx": "3.00",
        "billable": "0.0005",
        "wasted": "0",
        "per_audio_hour": "1.200000",
        "currency": "USD",
    }
    assert total[1:] == row[1:]
    for accept, kind in (
        ("text/csv", "text/csv; charset=utf-8"),
        ("image/svg+xml;q=0.9, text/csv;q=0.5, */*;q=0.1", "image/svg+xml"),
        ("text/html, application/json;q=0.9", "application/json"),
        ("*/*", "application/json"),
        ("text/csv;q=a, ;", "application/json"),
        ("", "application/json"),
    ):
        preferred = http.get("/v1/costs", headers={"Accept": accept})
        assert preferred.headers["content-type"] == kind, accept
    asked_for: dict[str, Any] = {"headers": {"Accept": "text/csv"}, "params": {"format": "json"}}
    assert http.get("/v1/costs", **asked_for).headers["content-type"] == "application/json"
    plot = http.get("/v1/costs", params={"group_by": "project", "format": "svg"})
    assert plot.headers["content-type"] == "image/svg+xml"
    titles = ElementTree.fromstring(plot.text).iter("{http://www.w3.org/2000/svg}title")
    assert [title.text for title in titles] == ["a-b: 0.000500000 USD, wasted 0 USD"]


def test_a_million_hours_and_the_budgets(http: httpx.Client, live: Live, recordings: Path) -> None:
    assert http.get("/v1/costs").json()["projection"] is None
    done(http, live, recordings)
    report = http.get("/v1/costs").json()
    total = float(report["total"]["billable"]) + float(report["idle_cost"])
    projection = report["projection"]
    assert float(projection["per_million_hours"]) == pytest.approx(total / 1.5 * 3600 * 1e6, rel=1e-6)
    assert projection["clouds"] == [
        {"name": "A cloud", "per_audio_hour": "0.36", "per_million_hours": "360000"}
    ]
    assert projection["clouds_as_of"] == "2026-11-01"
    budgets = {one["project"]: (one["state"], one["share"]) for one in report["budgets"]}
    assert budgets == {"=cmd": ("within", 0.0), "default": ("near", 1.0), "empty": ("within", None)}
    done(http, live, recordings)
    report = http.get("/v1/costs").json()
    assert [one["state"] for one in report["budgets"] if one["project"] == "default"] == ["over"]
    assert 'spool_budget_share{project="default"} 2.0' in http.get("/metrics").text


def test_a_project_sees_its_own_budget_alone(http: httpx.Client, live: Live, recordings: Path) -> None:
    done(http, live, recordings)
    with live.services.database.begin() as tx:
        text = create_key(tx, "reader", "empty", [Scope.READ]).text
    live.services.key_cache.check_required()
    report = http.get("/v1/costs", headers={"Authorization": f"Bearer {text}"}).json()
    assert [one["project"] for one in report["budgets"]] == ["empty"]
    assert report["rows"] == []
    assert report["idle_cost"] is None
