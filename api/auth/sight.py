"""What a reader is given of recordings that are closed in part: every way out asks `Sight`.

Nobody sees what is closed unless the request asks for it (`closed=true`) with a key that may; that is logged
before anything is given. So a file for publication has nothing closed in it by mistake, whoever fetches it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fastapi import Depends, Query, Request

from api.auth.authentication import CallerDep, rule_name
from api.auth.principal import Principal
from api.services import Services
from spool.domain.api_keys import Scope
from spool.domain.archive.closures import ClosedParts
from spool.domain.archive.edits import Edit
from spool.domain.jobs import Job
from spool.domain.transcript import Transcript
from spool.errors import Forbidden
from spool.formats import mark_record, redact_record
from spool.store import Database
from spool.store.archive.closed import closed_parts, closed_parts_of
from spool.store.archive.closures import note_openings

CLOSED_PARAMETER = Query(
    alias="closed",
    description="Include what is closed to readers: for keys with the scope `closed`. It is logged.",
)


class View(NamedTuple):
    """One job's recording as one request sees it."""

    closed: ClosedParts
    opened: bool = False

    @property
    def hides(self) -> bool:
        """Whether something of it is not shown."""
        return bool(self.closed) and not self.opened

    def show(self, transcript: Transcript) -> Transcript:
        """The transcript without what is closed; if it is opened, with marks."""
        return self.closed.mark(transcript) if self.opened else self.closed.redact(transcript)

    def show_record(self, record: bytes, edits: Sequence[Edit], names: Mapping[str, str]) -> list[bytes]:
        """The bytes of a record, corrected and with names, as `show` shows its transcript."""
        change = mark_record if self.opened else redact_record
        return change(record, edits, names, self.closed)

    def covers(self, start: float, end: float, speaker: str | None = None) -> bool:
        """Whether something of this stretch is not shown."""
        return not self.opened and self.closed.covers(start, end, speaker)


@dataclass(frozen=True, slots=True)
class Sight:
    """What one request may see."""

    caller: str
    opened: bool
    way: str

    def look(self, database: Database, *of_jobs: Job) -> dict[str, View]:
        """By id how the request sees these jobs. What it opens is logged first."""
        with database.read() as tx:
            parts = closed_parts(tx, of_jobs)
        if self.opened:
            self.note(database, [job for job in of_jobs if parts[job.id]])
        return {job_id: View(closed, self.opened) for job_id, closed in parts.items()}

    def look_at(self, database: Database, job: Job) -> View:
        """How the request sees one job."""
        return self.look(database, job)[job.id]

    def note(self, database: Database, of_jobs: Collection[Job]) -> None:
        """Log that what is closed of these jobs is opened."""
        if of_jobs:
            with database.begin() as tx:
                note_openings(tx, of_jobs, self.caller, self.way)


READER = Sight("reader", opened=False, way="")
"""Somebody without the right."""


def may_open(caller: Principal, *, asked: bool) -> bool:
    """Whether to open what is closed: if it was asked for. Raises Forbidden without the right."""
    if asked and not caller.may(Scope.CLOSED):
        raise Forbidden("Opening what is closed requires a key with the scope closed.")
    return asked


def refuse_hidden(services: Services, caller: Principal, job: Job, change: str) -> None:
    """Raise Forbidden if something of the recording is closed to this caller, who is about to change it."""
    if caller.may(Scope.CLOSED):
        return
    with services.database.read() as tx:
        closed = closed_parts_of(tx, job)
    if closed:
        raise Forbidden(f"{closed.sentence} {change} requires a key with the scope closed.")


async def _sight(
    request: Request, caller: CallerDep, closed: Annotated[bool, CLOSED_PARAMETER] = False
) -> Sight:
    return Sight(caller.name, may_open(caller, asked=closed), rule_name(request))


SightDep = Annotated[Sight, Depends(_sight)]
