"""A cost report as a table for a spreadsheet and as a plot. Pure: a report in, text out."""

import csv
import io
from decimal import Decimal
from xml.sax.saxutils import escape, quoteattr

from spool.wire.costs import CostReportOut, CostRowOut

# A spreadsheet takes what begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 280, 80, 60, 16
_BARS = 40


def cost_csv(report: CostReportOut) -> str:
    """Rows and total, hours in decimals, money exact (RFC 4180)."""
    file = io.StringIO()
    writer = csv.writer(file)
    columns = ("audio_hours", "engine_hours", "rtfx", "billable", "wasted", "per_audio_hour", "currency")
    writer.writerow((report.group_by, *columns))
    for row in [*report.rows, report.total]:
        writer.writerow((_cell(row.key), *_numbers(row), report.currency))
    return file.getvalue()


def cost_svg(report: CostReportOut) -> str:
    """Bars, billable below wasted, of the first groups; each tells its numbers when pointed at."""
    rows = report.rows[:_BARS]
    most = max((row.billable + row.wasted for row in rows), default=Decimal(0)) or Decimal(1)
    room, each = _HEIGHT - _TOP - _BOTTOM, (_WIDTH - _LEFT - 8) / max(len(rows), 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label='
        f"{quoteattr(f'Cost by {report.group_by}, {report.start} to {report.end}, {report.currency}')}>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        '<g font-family="sans-serif" font-size="11" fill="#333">',
    ]
    for quarter in range(5):
        y = _TOP + room * (1 - quarter / 4)
        label = f"{most * quarter / 4:.3g}"
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for at, row in enumerate(rows):
        parts.append(_bar(row, report.currency, _LEFT + at * each, each, room, most))
    return "\n".join([*parts, "</g></svg>\n"])


def _bar(row: CostRowOut, currency: str, x: float, each: float, room: float, most: Decimal) -> str:
    billable, wasted = (room * float(amount / most) for amount in (row.billable, row.wasted))
    floor, middle = _TOP + room, x + each / 2
    told = f"{row.key}: {row.billable:f} {currency}, wasted {row.wasted:f} {currency}"
    name = escape(row.key[:20] or "none")
    return (
        f"<g><title>{escape(told)}</title>"
        f'<rect x="{x + each * 0.1:.1f}" width="{each * 0.8:.1f}" y="{floor - billable:.1f}" '
        f'height="{billable:.1f}" fill="#2b5fd9"/>'
        f'<rect x="{x + each * 0.1:.1f}" width="{each * 0.8:.1f}" y="{floor - billable - wasted:.1f}" '
        f'height="{wasted:.1f}" fill="#d9822b"/>'
        f'<text transform="translate({middle:.1f} {floor + 12:.1f}) rotate(35)">{name}</text></g>'
    )


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _numbers(row: CostRowOut) -> tuple[str, ...]:
    rate = "" if row.rtfx is None else f"{row.rtfx:.2f}"
    each = "" if row.per_audio_hour is None else f"{row.per_audio_hour:f}"
    hours = (f"{seconds / 3600:.6f}" for seconds in (row.audio_seconds, row.engine_seconds))
    return (*hours, rate, _exact(row.billable), _exact(row.wasted), each)


def _exact(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
