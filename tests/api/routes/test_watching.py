"""What is watched is what there is: alerts, dashboard, runbook and docs against a real `/metrics`."""

import json
import re

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ops.testbed.running_api import Live
from ops.watch.render_dashboard import DASHBOARD, expressions
from tests.api.cli.commands import ROOT

ALERTS = [
    rule
    for group in yaml.safe_load((ROOT / "ops" / "watch" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
PANELS = list(expressions(json.loads(DASHBOARD.read_text())))
ENDINGS = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "info": ("_info",)}


def asked(expression: str) -> set[str]:
    """The metrics that an expression asks for."""
    return set(re.findall(r"\bspool_\w+", re.sub(r'"[^"]*"', "", expression)))


def series(text: str) -> dict[str, str]:
    """The names that can be asked for, each with the name that documentation calls it by."""
    found = {}
    for family in text_string_to_metric_families(text):
        for ending in ENDINGS.get(family.type, ("",)):
            whole = f"{family.name}{ending}"
            found[whole] = family.name if family.type == "histogram" else whole
    return found


def test_alerts_and_dashboard_ask_for_what_there_is(http: httpx.Client) -> None:
    there = series(http.get("/metrics").text)
    for what, expression in [(rule["alert"], rule["expr"]) for rule in ALERTS] + PANELS:
        names = asked(expression)
        assert names <= there.keys(), what
        assert names or "up{" in expression or "day_of_month" in expression, what
    watched = set().union(*(asked(expression) for _, expression in PANELS))
    assert len(watched) > 20


def test_what_alerts_watch_for_changes_is_there_before_it_happens(http: httpx.Client, live: Live) -> None:
    """A series that begins at 1 has not increased, so that its alert would miss the first event."""
    live.work()
    there = [
        sample
        for family in text_string_to_metric_families(http.get("/metrics").text)
        for sample in family.samples
    ]
    changes = r"\b(?:increase|delta|min_over_time)\((spool_\w+)(?:\{([^}]*)\})?\["
    watched = {
        (rule["alert"], name, labels) for rule in ALERTS for name, labels in re.findall(changes, rule["expr"])
    }
    assert len(watched) >= 8
    for alert, name, labels in watched:
        for label, _, pattern in re.findall(r'(\w+)(=~?)"([^"]*)"', labels):
            for value in pattern.split("|"):
                values = [sample.labels.get(label) for sample in there if sample.name == name]
                assert value in values, (alert, name, label, value)
        assert name in {sample.name for sample in there}, (alert, name)
    failed = {
        sample.labels["error"]: sample.value
        for sample in there
        if sample.name == "spool_worker_attempts_total" and sample.labels["outcome"] == "failed"
    }
    assert {"source_missing", "audio_unreadable", "internal"} <= failed.keys()
    assert set(failed.values()) == {0}


def test_the_docs_table_is_what_metrics_says(http: httpx.Client) -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text.partition("## Monitoring")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `spool_")]
    told = [name for row in rows for name in re.findall(r"`(spool_\w+)`", row)]
    assert len(told) == len(set(told))
    assert set(told) == set(series(http.get("/metrics").text).values())


def test_every_alert_has_its_entry_in_the_runbook() -> None:
    entries = (ROOT / "docs" / "runbook.md").read_text().split("\n## ")[1:]
    by_title = {entry.partition("\n")[0]: entry for entry in entries}
    assert list(by_title) == [rule["alert"] for rule in ALERTS], "in the same order"
    for rule in ALERTS:
        anchor = rule["alert"].lower()
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{anchor}"
        assert rule["labels"]["severity"] in ("page", "ticket")
        for part in ("**Means.**", "**Look.**", "**Do.**"):
            assert part in by_title[rule["alert"]], rule["alert"]


def test_every_alert_is_tried_where_it_speaks_and_where_it_is_silent() -> None:
    tried: dict[str, set[bool]] = {rule["alert"]: set() for rule in ALERTS}
    for file in ("alerts_test.yml", "budgets_test.yml"):
        for group in yaml.safe_load((ROOT / "ops" / "watch" / file).read_text())["tests"]:
            for case in group["alert_rule_test"]:
                tried[case["alertname"]].add(bool(case["exp_alerts"]))
    assert all(True in outcomes for outcomes in tried.values()), tried
