"""Draws the Grafana dashboard's panels from a Prometheus as one HTML page, without Grafana.

    python -m ops.watch.render_dashboard --prometheus http://127.0.0.1:9090 --minutes 10 --out dashboard.html

Asks Prometheus for each panel's expressions and draws lines, stacks, single numbers, units, legends and the
text for no data; nothing else of a panel. Prints the panels without data; exits with 1 if Prometheus refuses
an expression.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import httpx

DASHBOARD = Path(__file__).parent / "grafana" / "dashboards" / "spool.json"
VARIABLES = {"$__rate_interval": "1m", "$pool": ".*"}
POINTS = 240
COLOURS = ("#3274d9", "#e0752d", "#299c46", "#a352cc", "#c4162a", "#8f7a00", "#13a3a3", "#808080")
WIDTH, HEIGHT, LEFT, BOTTOM = 520, 190, 52, 18

STYLE = """
body { font: 13px system-ui, sans-serif; background: #f4f5f5; color: #24292e; margin: 16px }
h1 { font-size: 20px } h2 { grid-column: span 24; font-size: 15px; margin: 10px 0 0 }
main { display: grid; grid-template-columns: repeat(24, 1fr); gap: 8px }
section { background: #fff; border: 1px solid #dde; padding: 8px; min-width: 0 }
h3 { font-size: 13px; margin: 0 0 4px } p { margin: 0; font-size: 11px; color: #667 }
.stat { font-size: 34px; text-align: center; padding: 10px 0 } .none { color: #a00 }
.legend span { margin-right: 10px; white-space: nowrap }
.legend i { display: inline-block; width: 10px; height: 4px; margin-right: 4px }
svg { width: 100% } text { font-size: 10px; fill: #667 }
"""


@dataclass(frozen=True)
class Series:
    """One line: its name in the legend, and (Unix seconds, value) pairs."""

    name: str
    points: Sequence[tuple[float, float]]


def expressions(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every panel's title with each of its expressions, the dashboard's variables filled in."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], filled(target["expr"])


def filled(expression: str) -> str:
    """The expression as Prometheus understands it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


class Source:
    """A Prometheus, over the `minutes` that ended `ago` minutes before now."""

    def __init__(self, url: str, minutes: float, ago: float = 0.0) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)
        self.end = time.time() - 60 * ago
        self.start = self.end - 60 * minutes
        self.refused: list[str] = []

    def series(self, target: Mapping[str, Any]) -> list[Series]:
        """What the target's expression gives."""
        step = max(1.0, (self.end - self.start) / POINTS)
        asked: dict[str, str | float] = {
            "query": filled(target["expr"]),
            "start": self.start,
            "end": self.end,
            "step": step,
        }
        answer = self._http.get("/api/v1/query_range", params=asked).json()
        if answer["status"] != "success":
            self.refused.append(f"{target['expr']}: {answer['error']}")
            return []
        return [
            Series(
                legend(target.get("legendFormat", ""), found["metric"]),
                [(float(at), float(value)) for at, value in found["values"] if value not in ("NaN", "+Inf")],
            )
            for found in answer["data"]["result"]
        ]


def legend(form: str, labels: Mapping[str, str]) -> str:
    """Grafana's `{{label}}` filled in; the labels themselves where there is no form."""
    if not form:
        return ", ".join(f"{k}={v}" for k, v in labels.items() if k != "__name__")
    for name, value in labels.items():
        form = form.replace("{{" + name + "}}", value)
    return re.sub(r"\s*\{\{\w+\}\}", "", form)  # a label that this series has not


def shown(value: float, unit: str) -> str:
    """A number as the panel's unit has it."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s" and value >= 90:
        return f"{value / 60:.3g} min"
    ending = {"s": " s", "h": " h"}.get(unit, "")
    return f"{value:.0f}{ending}" if abs(value) >= 1000 else f"{value:.3g}{ending}"


def drawn(panel: Mapping[str, Any], series: Sequence[Series], source: Source) -> str:
    """The inside of a panel."""
    defaults = panel["fieldConfig"]["defaults"]
    unit = defaults.get("unit", "short")
    if not any(one.points for one in series):
        return f'<p class="none">{escape(defaults.get("noValue", "No data"))}</p>'
    if panel["type"] == "stat":
        value = next(one.points[-1][1] for one in series if one.points)
        return f'<div class="stat" style="color:{_colour(defaults, value)}">{shown(value, unit)}</div>'
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    names = "".join(
        f'<span><i style="background:{COLOURS[i % len(COLOURS)]}"></i>{escape(one.name)}</span>'
        for i, one in enumerate(series)
    )
    return f'{_chart(series, source, unit, stacked, defaults)}<div class="legend">{names}</div>'


def _colour(defaults: Mapping[str, Any], value: float) -> str:
    colour = "#3274d9"
    for step in defaults.get("thresholds", {}).get("steps", ()):
        if step["value"] is None or value >= step["value"]:
            colour = {"red": "#c4162a", "green": "#299c46"}[step["color"]]
    return colour


def _chart(
    series: Sequence[Series], source: Source, unit: str, stacked: bool, defaults: Mapping[str, Any]
) -> str:
    base: dict[float, float] = {}
    lines = []
    for one in series:
        points = []
        for at, value in one.points:
            base[at] = base.get(at, 0.0) + value if stacked else value
            points.append((at, base[at]))
        lines.append(points)
    top = max([value for points in lines for _, value in points] + [defaults.get("max", 0.0)]) or 1.0
    low = min([value for points in lines for _, value in points] + [0.0])

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT) * (at - source.start) / (source.end - source.start)

    def y(value: float) -> float:
        return (HEIGHT - BOTTOM) - (HEIGHT - BOTTOM - 8) * (value - low) / (top - low)

    parts = []
    for share in (0.0, 0.5, 1.0):
        value = low + share * (top - low)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#e4e7eb"/>'
        )
        label = shown(value, unit)
        parts.append(f'<text x="{LEFT - 4}" y="{y(value) + 3:.1f}" text-anchor="end">{label}</text>')
        at = source.start + share * (source.end - source.start)
        clock = datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
        anchor = {0.0: "start", 0.5: "middle", 1.0: "end"}[share]
        parts.append(f'<text x="{x(at):.1f}" y="{HEIGHT - 4}" text-anchor="{anchor}">{clock}</text>')
    for i, points in enumerate(lines):
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        colour = COLOURS[i % len(COLOURS)]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(parts)}</svg>'


def page(dashboard: Mapping[str, Any], source: Source) -> str:
    """The whole dashboard."""
    parts = []
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            parts.append(f"<h2>{escape(panel['title'])}</h2>")
            continue
        series = [one for target in panel["targets"] for one in source.series(target)]
        if not any(one.points for one in series):
            print(f"no data: {panel['title']}")
        inside = drawn(panel, series, source)
        parts.append(
            f'<section style="grid-column: span {panel["gridPos"]["w"]}"><h3>{escape(panel["title"])}</h3>'
            f"{inside}<p>{escape(panel['description'])}</p></section>"
        )
    title = escape(dashboard["title"])
    return (
        f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>'
        f"<main>{''.join(parts)}</main>"
    )


def main() -> int:
    """Draw; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--ago", type=float, default=0, help="minutes before now at which it ends")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    source = Source(given.prometheus, given.minutes, given.ago)
    given.out.write_text(page(json.loads(DASHBOARD.read_text(encoding="utf-8")), source), encoding="utf-8")
    for refused in source.refused:
        print(f"refused: {refused}")
    return 1 if source.refused else 0


if __name__ == "__main__":
    sys.exit(main())
