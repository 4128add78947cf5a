"""Times in a recording as people write them: 12:30, 1:02:03 or 750.5."""

import re
from typing import Annotated

from cyclopts import Parameter

from spool.errors import InvalidRequest

_TIME = re.compile(r"(?:(?:(\d+):)?(\d{1,2}):)?(\d+(?:\.\d+)?)")
Time = Annotated[str | None, Parameter(metavar="TIME")]


def seconds_of(flag: str, text: str | None) -> float | None:
    """The seconds of a flag's time. Raises InvalidRequest."""
    if text is None:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{flag}: {text} is not a time such as 12:30, 1:02:03 or 750.5.")
    hours, minutes, seconds = match.groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds)
