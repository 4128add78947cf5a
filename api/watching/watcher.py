"""Lists watched folders and buckets, and submits what is new or has changed.

One thread in each API process; only one process lists a source at a time. Listings are authoritative: a
notification merely makes some files be looked at sooner. A version of a file is submitted once, whatever
happens in between (`spool.store.archive.sources`). If a listing fails, its reason is recorded and the source
is listed again; nothing is forgotten because it was not found.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta

import structlog

from api.auth.principal import OPERATOR, Principal
from api.services import Services
from api.submission.intake import Intake
from api.submission.listing import (
    PROBED_AT_ONCE,
    Candidate,
    Judgement,
    custom_id_of,
    find_candidate,
    judge_all,
    list_candidates,
)
from spool.background.thread import BackgroundLoop
from spool.domain.api_keys import Scope
from spool.domain.jobs import Source
from spool.domain.manifest import BadLine, SkippedFile, in_blocks
from spool.errors import LeaseLost, SourceMissing, SpoolError
from spool.failpoints import failpoint
from spool.ids import new_id
from spool.schemas.batches import BatchUploadRequest
from spool.store.archive.sources import (
    NewItem,
    SourceListing,
    SourceTurn,
    end_turn,
    find_items,
    note_items,
    take_turn,
)
from spool.tables.sources import Item, WatchedSource

LOOK_S = 2.0

log = structlog.get_logger(__name__)


class SourceWatcher(BackgroundLoop):
    """Lists due sources until stopped."""

    def __init__(self, services: Services) -> None:
        super().__init__("spool-watcher")
        self._services = services
        self._owner = new_id("wat")

    def run_once(self) -> float:
        """Look at one source; return the seconds until the next look."""
        with self._services.database.begin() as tx:
            turn = take_turn(tx, self._owner)
        if turn is None:
            return LOOK_S
        failpoint("watch.taken")
        seen, error = None, None
        try:
            seen = self._look(turn)
        except LeaseLost as lost:
            log.info("a listing ended early", source=turn.source.id, reason=lost.message)
        except SpoolError as failure:
            error = failure.message
            log.warning("a source cannot be listed", source=turn.source.id, reason=error)
        with self._services.database.begin() as tx:
            end_turn(tx, turn, self._owner, seen, error)
        return 0.0

    def _look(self, turn: SourceTurn) -> SourceListing:
        """Look at the whole source, or at its marked files."""
        source = turn.source
        caller = principal_of(source)
        request = BatchUploadRequest.model_validate(source.request)
        intake = Intake(self._services, caller, request, address=source.address)
        files: Iterable[Candidate] = (
            list_candidates(source.address, intake.access, caller)
            if turn.listing
            else self._find_marked(turn, intake)
        )
        files_seen = settling = jobs = 0
        for block in in_blocks(files, PROBED_AT_ONCE):
            if self.stopping:
                raise LeaseLost("This process is stopping.")
            files_seen += len(block)
            new, unsettled = self._new_items(turn, intake, block)
            settling += unsettled
            with self._services.database.begin() as tx:
                jobs += note_items(tx, turn, self._owner, new)
            if new:
                failpoint("watch.noted")
        if jobs:
            self._services.sweeper.wake()
            log.info("submitted from a source", source=source.id, jobs=jobs)
        return SourceListing(files_seen, settling)

    def _find_marked(self, turn: SourceTurn, intake: Intake) -> Iterator[Candidate]:
        for place in turn.marked:
            candidate = find_candidate(turn.source.address, place, intake.access, intake.caller)
            if candidate is not None:
                yield candidate

    def _new_items(
        self, turn: SourceTurn, intake: Intake, block: list[Candidate]
    ) -> tuple[list[NewItem], int]:
        """New files of the block: to be waited for, submitted, or passed over with a reason; and how many
        have not settled yet."""
        with self._services.database.look() as tx:
            known = find_items(tx, turn.source.id, [custom_id_of(each.place) for each in block])
        new: list[NewItem] = []
        settled, unsettled = [], 0
        for candidate in block:
            item = known.get((custom_id_of(candidate.place), candidate.version))
            if item is not None and item.state != "settling":
                continue
            if _is_settled(item, turn):
                settled.append(candidate)
                continue
            unsettled += 1
            if item is None:
                new.append(NewItem(custom_id_of(candidate.place), candidate.version, "settling"))
        for candidate, judged in judge_all(settled):
            if not isinstance(judged, SourceMissing):  # it was removed in the meantime
                new.append(_item(candidate, judged, intake))
        return new, unsettled


def principal_of(source: WatchedSource) -> Principal:
    """The principal of whoever created the source, with the rights of its key."""
    reads = None if source.reads is None else tuple(source.reads)
    scopes = frozenset({Scope.SUBMIT})
    return Principal(source.key_id or OPERATOR.name, source.project, scopes, reads)


def _is_settled(item: Item | None, turn: SourceTurn) -> bool:
    """Whether the version has been listed unchanged for so long that nobody is still writing the file.

    The database's clock decides. The file's own time does not: its writer may have another clock, or may have
    copied the time with the content.
    """
    if not turn.source.settle_seconds:
        return True
    return item is not None and turn.now - item.created_at >= timedelta(seconds=turn.source.settle_seconds)


def _item(candidate: Candidate, judged: Judgement, intake: Intake) -> NewItem:
    place, version = custom_id_of(candidate.place), candidate.version
    if isinstance(judged, SkippedFile):
        return NewItem(place, version, "skipped", judged.reason)
    if not isinstance(judged, Source):
        return NewItem(place, version, "refused", judged.message)
    job = intake.build_listed_job(candidate.place, judged)
    if isinstance(job, BadLine):
        return NewItem(place, version, "refused", job.message)
    return NewItem(place, version, "taken", job=job)
