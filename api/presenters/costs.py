"""A cost report as JSON, as CSV and as an SVG chart. Pure: records in, models and text out."""

import csv
import io
from decimal import Decimal
from xml.sax.saxutils import escape, quoteattr

from api.auth.principal import Principal
from spool.domain.estimates import MILLION, budget_state, per_audio_hour, project_costs
from spool.domain.ledger import CostReport, CostSums
from spool.domain.pricing import CloudPrices, money
from spool.schemas.costs import BudgetOut, CloudOut, CostReportOut, CostRowOut, ProjectionOut
from spool.settings import Settings


def present_costs(
    report: CostReport, settings: Settings, caller: Principal, month: dict[str, int]
) -> CostReportOut:
    """The report as the API shows it. `month`: what each project has spent this month, in nano-units."""
    return CostReportOut.of(
        report,
        rows=[_row(row.key, row.sums) for row in report.rows],
        total=_row("total", report.total),
        projection=_projection(report, settings.cloud_prices),
        budgets=[
            _budget(project, budget, money(month.get(project, 0)))
            for project, budget in sorted(settings.budgets.items())
            if caller.sees(project)
        ],
    )


def _row(key: str, sums: CostSums) -> CostRowOut:
    return CostRowOut.of(sums, key=key, per_audio_hour=per_audio_hour(sums.billable_cost, sums.audio_samples))


def _projection(report: CostReport, clouds: CloudPrices) -> ProjectionOut | None:
    projection = project_costs(report)
    if projection is None:
        return None
    return ProjectionOut.of(
        projection,
        clouds=[
            CloudOut(name=name, per_audio_hour=price, per_million_hours=price * MILLION)
            for name, price in sorted(clouds.per_audio_hour.items(), key=lambda price: (price[1], price[0]))
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


# Spreadsheets read a cell that begins with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 280, 80, 60, 16
_BARS = 40


def cost_csv(report: CostReportOut) -> str:
    """Rows and total, with hours as decimals and exact amounts of money (RFC 4180)."""
    file = io.StringIO()
    writer = csv.writer(file)
    columns = ("audio_hours", "engine_hours", "rtfx", "billable", "wasted", "per_audio_hour", "currency")
    writer.writerow((report.group_by, *columns))
    for row in [*report.rows, report.total]:
        writer.writerow((_cell(row.key), *_numbers(row), report.currency))
    return file.getvalue()


def cost_svg(report: CostReportOut) -> str:
    """A bar for each of the first groups, billable below wasted, with its numbers as tooltip."""
    rows = report.rows[:_BARS]
    most = max((row.billable + row.wasted for row in rows), default=Decimal(0)) or Decimal(1)
    height, step = _HEIGHT - _TOP - _BOTTOM, (_WIDTH - _LEFT - 8) / max(len(rows), 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label='
        f"{quoteattr(f'Cost by {report.group_by}, {report.start} to {report.end}, {report.currency}')}>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        '<g font-family="sans-serif" font-size="11" fill="#333">',
    ]
    for quarter in range(5):
        y = _TOP + height * (1 - quarter / 4)
        label = f"{most * quarter / 4:.3g}"
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for index, row in enumerate(rows):
        parts.append(_bar(row, report.currency, _LEFT + index * step, step, height, most))
    return "\n".join([*parts, "</g></svg>\n"])


def _bar(row: CostRowOut, currency: str, x: float, step: float, height: float, most: Decimal) -> str:
    billable, wasted = (height * float(amount / most) for amount in (row.billable, row.wasted))
    floor, middle = _TOP + height, x + step / 2
    title = f"{row.key}: {row.billable:f} {currency}, wasted {row.wasted:f} {currency}"
    name = escape(row.key[:20] or "none")
    return (
        f"<g><title>{escape(title)}</title>"
        f'<rect x="{x + step * 0.1:.1f}" width="{step * 0.8:.1f}" y="{floor - billable:.1f}" '
        f'height="{billable:.1f}" fill="#2b5fd9"/>'
        f'<rect x="{x + step * 0.1:.1f}" width="{step * 0.8:.1f}" y="{floor - billable - wasted:.1f}" '
        f'height="{wasted:.1f}" fill="#d9822b"/>'
        f'<text transform="translate({middle:.1f} {floor + 12:.1f}) rotate(35)">{name}</text></g>'
    )


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _numbers(row: CostRowOut) -> tuple[str, ...]:
    rate = "" if row.rtfx is None else f"{row.rtfx:.2f}"
    price = "" if row.per_audio_hour is None else f"{row.per_audio_hour:f}"
    hours = (f"{seconds / 3600:.6f}" for seconds in (row.audio_seconds, row.engine_seconds))
    return (*hours, rate, _exact(row.billable), _exact(row.wasted), price)


def _exact(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
