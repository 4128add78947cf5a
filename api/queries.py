"""Parameters that several routes share: which jobs, which page, and the key that makes a POST repeatable."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Header, Query

from api.auth.authentication import CallerDep
from api.auth.principal import Principal
from spool.domain.jobs import JobState
from spool.errors import InvalidRequest
from spool.formats import Preset
from spool.schemas.common import Moment, Pool, Project, WorkerName
from spool.store.jobs import JobFilter, tag_of

Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the previous page.")]
Limit = Annotated[int, Query(ge=1, le=200)]
Subtitles = Annotated[
    Preset | None,
    Query(
        description="Whose rules the subtitles follow, for `srt`, `vtt` and `ttml`; `netflix` if not given."
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Any text. Repeating a request with the same key returns the first job.",
    ),
]


def narrow(caller: Principal, project: str | None) -> str | None:
    """The project whose things a list shows; None for those of all. A project that the caller may not see is
    listed as empty, like one that does not exist."""
    if project is not None and not caller.sees(project):
        return NOBODYS
    return caller.project or project


async def _narrow(caller: CallerDep, project: Project | None = None) -> str | None:
    # A coroutine, since FastAPI runs any other dependency in a thread.
    return narrow(caller, project)


NOBODYS = ""  # no project has this name
ListedProject = Annotated[str | None, Depends(_narrow)]


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs a list, the search or the review covers."""

    project: Project | None = None
    batch: Annotated[str | None, Query(max_length=64, description="Only jobs of this batch.")] = None
    name: Annotated[
        str | None, Query(max_length=200, description="Only recordings with this in their name, in any case.")
    ] = None
    tag: Annotated[
        str | None, Query(max_length=300, description="Only jobs with this tag: `key` or `key=value`.")
    ] = None
    created_from: Annotated[
        Moment | None, Query(description="Only jobs created at this time or later (ISO 8601).")
    ] = None
    created_to: Annotated[
        Moment | None, Query(description="Only jobs created before this time (ISO 8601).")
    ] = None

    def to_filter(
        self,
        caller: Principal,
        *,
        state: JobState | None = None,
        pool: Pool | None = None,
        worker: WorkerName | None = None,
        language: str | None = None,
        content: str | None = None,
    ) -> JobFilter:
        """The filter, with what else a route narrows it by."""
        return JobFilter(
            project=narrow(caller, self.project),
            batch=self.batch,
            name=self.name or None,
            tag=tag_of(self.tag) if self.tag else None,
            created_from=_to_utc(self.created_from),
            created_to=_to_utc(self.created_to),
            state=state,
            pool=pool,
            worker=worker,
            language=language,
            content=content,
        )


JobQueryDep = Annotated[JobQuery, Depends()]


def _to_utc(moment: datetime | None) -> datetime | None:
    """The moment in UTC; one without a zone is taken as UTC."""
    if moment is None or moment.tzinfo is None:
        return moment and moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidRequest("The time lies outside the calendar.") from None
