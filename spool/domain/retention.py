"""How long recordings and transcripts are kept, by project. Pure: text and spans, no clock.

A span is written 12h, 30d, 8w or 5y (365 days each), or `keep` for ever, which is the rule where nothing is
said.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

KEEP = "keep"
EVERY_OTHER = "*"
"""Stands for each project that has no rule of its own."""
_SPAN = re.compile(r"([1-9]\d{0,4})([hdwy])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


class Content(StrEnum):
    """What of a job can be deleted: its uploaded recording, or every word of it."""

    SOURCE = "source"
    TRANSCRIPT = "transcript"


def content_of(key: str) -> Content:
    """What an object under `jobs/` is: the upload at `jobs/{id}/source`, else part of a transcript, which has
    files of every attempt, whether it counts or not."""
    _, _, rest = key.removeprefix("jobs/").partition("/")
    return Content.SOURCE if rest == "source" else Content.TRANSCRIPT


def span(text: str) -> timedelta | None:
    """The span that `12h`, `30d`, `8w` or `5y` says; None for anything else."""
    found = _SPAN.fullmatch(text.strip())
    return int(found[1]) * _UNITS[found[2]] if found else None


def _written(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.strip() == KEEP:
        return None
    found = span(value)
    if found is None:
        raise ValueError(f"{value!r} is neither `keep` nor a span such as 12h, 30d, 8w or 5y")
    return found


Span = Annotated[timedelta | None, BeforeValidator(_written)]


class Retention(BaseModel):
    """One project's rule: how long after a job's end its recording and its words are kept; None: for ever."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Span = None
    transcript: Span = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:  # noqa: ANN401 - pydantic's raw input
        """`30d/5y` is recording and words, `30d` both."""
        if not isinstance(value, str):
            return value
        source, slash, transcript = value.partition("/")
        return {"source": source, "transcript": transcript if slash else source}

    def of(self, content: Content) -> timedelta | None:
        """How long this is kept."""
        return self.source if content is Content.SOURCE else self.transcript


def rule_for(rules: Mapping[str, Retention], project: str) -> Retention:
    """The rule of a project."""
    return rules.get(project) or rules.get(EVERY_OTHER) or Retention()
