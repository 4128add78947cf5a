"""Alerts and dashboard by Prometheus' own judgement: `promtool` reads, checks and tries them."""

import json
import subprocess
from pathlib import Path

import yaml

from ops.watch.render_dashboard import DASHBOARD, expressions
from tests.watch.needs import PROMTOOL

WATCH = DASHBOARD.parents[2]


def promtool(*arguments: str | Path) -> str:
    """What it says. Fails where it finds fault."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, cwd=WATCH)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_prometheus_takes_the_configuration(tmp_path: Path) -> None:
    # Its key lies in a container's secrets, which are not here: everything but that file has to be there.
    (tmp_path / "key").write_text("a key")
    config = yaml.safe_load((WATCH / "prometheus.yml").read_text())
    (scrape,) = config["scrape_configs"]
    assert Path(scrape["authorization"]["credentials_file"]).parent == Path("/run/secrets")
    scrape["authorization"]["credentials_file"] = "key"
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "alerts.yml").write_bytes((WATCH / "alerts.yml").read_bytes())
    assert "rules found" in promtool("check", "config", tmp_path / "prometheus.yml")


def test_each_alert_speaks_where_it_should_and_nowhere_else() -> None:
    assert "FAILED" not in promtool("test", "rules", "alerts_test.yml", "budgets_test.yml")


def test_every_expression_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, (_, expression) in enumerate(expressions(json.loads(DASHBOARD.read_text())))
    ]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", tmp_path / "panels.yml")
