"""Examples of costs for the OpenAPI page."""

from spool.schemas.examples.jobs import Example

_ROW: Example = {
    "key": "2026-11-20",
    "audio_seconds": 147813.2,
    "engine_seconds": 2988.5,
    "rtfx": 49.46,
    "billable": "0.332056",
    "wasted": "0",
    "per_audio_hour": "0.008087",
}

COSTS: Example = {
    "start": "2026-11-20",
    "end": "2026-11-21",
    "group_by": "day",
    "currency": "USD",
    "rows": [_ROW],
    "total": _ROW | {"key": "total"},
    "idle_seconds": 611.5,
    "idle_cost": "0.067944",
    "projection": {
        "per_audio_hour": "0.009742",
        "per_million_hours": "9742",
        "basis": "41.06 h of audio: billable, wasted and idle cost together.",
        "clouds": [{"name": "OpenAI whisper-1", "per_audio_hour": "0.36", "per_million_hours": "360000"}],
        "clouds_as_of": "2026-03-16",
        "clouds_currency": "USD",
    },
    "budgets": [
        {"project": "oral-history", "budget": "50", "spent": "12.4", "share": 0.248, "state": "within"}
    ],
}

CSV = (
    "day,audio_hours,engine_hours,rtfx,billable,wasted,per_audio_hour,currency\r\n"
    "2026-11-20,41.059222,0.830139,49.46,0.332056,0,0.008087,USD\r\n"
    "total,41.059222,0.830139,49.46,0.332056,0,0.008087,USD\r\n"
)

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 280">…</svg>'
