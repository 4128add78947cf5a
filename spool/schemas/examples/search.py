"""The examples of the search. Pure data."""

from spool.schemas.examples.jobs import JOB_ID, Example

MATCH: Example = {
    "start": 4711.52,
    "end": 4712.3,
    "confidence": 0.91,
    "first_character": 25,
    "last_character": 33,
    "alternative": None,
}

HIT: Example = {
    "job": JOB_ID,
    "name": "Reel 42",
    "project": "oral-history",
    "batch": None,
    "custom_id": None,
    "channel": 0,
    "speaker": "speaker_1",
    "speaker_name": "Anna Petersen",
    "start": 4711.52,
    "text": "and that night the storm fog horn was broken, so he kept the light",
    "matches": [MATCH],
    "url": f"/#/jobs/{JOB_ID}?t=4711.52",
}

SEARCH_PAGE: Example = {"items": [HIT], "next_cursor": None}
