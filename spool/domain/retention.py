"""How long recordings and transcripts are kept, by project. Pure: text and durations, no clock.

A duration is written 12h, 30d, 8w or 5y (365 days each), or `keep` for forever, which is the default.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

KEEP = "keep"
EVERY_OTHER = "*"
"""Stands for each project without its own rule."""
_SPAN = re.compile(r"([1-9]\d{0,4})([hdwy])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


class Content(StrEnum):
    """What can be deleted of a job: its uploaded recording, or its transcript."""

    SOURCE = "source"
    TRANSCRIPT = "transcript"


def content_of(key: str) -> Content:
    """The content that an object under `jobs/` belongs to: the recording at `jobs/{id}/source` or, for an
    unfinished live session, below `jobs/{id}/live/`; otherwise a transcript's files, of any attempt."""
    _, _, rest = key.removeprefix("jobs/").partition("/")
    return Content.SOURCE if rest == "source" or rest.startswith("live/") else Content.TRANSCRIPT


def span(text: str) -> timedelta | None:
    """The duration that `12h`, `30d`, `8w` or `5y` means; None for anything else."""
    match = _SPAN.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2]] if match else None


def _parse_duration(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.strip() == KEEP:
        return None
    duration = span(value)
    if duration is None:
        raise ValueError(f"{value!r} is neither `keep` nor a duration such as 12h, 30d, 8w or 5y")
    return duration


Span = Annotated[timedelta | None, BeforeValidator(_parse_duration)]


class Retention(BaseModel):
    """One project's rule: how long after a job's end its recording and transcript are kept; None: forever."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    source: Span = None
    transcript: Span = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:  # noqa: ANN401 - pydantic's raw input
        """Read the short form: `30d/5y` for recording and transcript, `30d` for both."""
        if not isinstance(value, str):
            return value
        source, slash, transcript = value.partition("/")
        return {"source": source, "transcript": transcript if slash else source}

    def of(self, content: Content) -> timedelta | None:
        """How long this content is kept; None: forever."""
        return self.source if content is Content.SOURCE else self.transcript


def rule_for(rules: Mapping[str, Retention], project: str) -> Retention:
    """The project's rule, or the default one."""
    return rules.get(project) or rules.get(EVERY_OTHER) or Retention()
