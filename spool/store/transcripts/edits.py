"""Corrections of a job's transcript: serialised, each in one transaction with the search's words.

Two people may correct one transcript at once: an edit names the revision that its author saw, and is refused
if the same words were changed since (`EditConflict`). The transcript in the object store is never changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from spool.domain.archive.edits import Edit, apply_edits, check_edit, find_standing_edits, text_in
from spool.domain.archive.record import Record
from spool.domain.archive.recutting import count_shown
from spool.domain.archive.sampling import passage_errors
from spool.domain.retention import Content
from spool.domain.search.names import find_names
from spool.errors import Conflict, NotFound
from spool.store.archive.closures import follow_speakers
from spool.store.archive.exports import enqueue_exports
from spool.store.deletions import refuse_deleted
from spool.store.event_log import note_corrected
from spool.store.jobs import get_job
from spool.store.sql import read_clock
from spool.store.transcripts.passages import update_recording
from spool.store.transcripts.reindexing import index_edits
from spool.tables import edits, jobs, review_passages
from spool.tables.record import reader_of, values_of

Change = Callable[[Connection, Record], Edit]
"""Corrects a transcript in a transaction."""


class EditConflict(Conflict):
    """Another edit changed these words in the meantime."""

    def __init__(self, other: Edit) -> None:
        """`other` is the latest edit of the same words."""
        super().__init__(
            f"{other.author} changed these words in revision {other.revision}; review that and edit again."
        )
        self.other = other


@dataclass(frozen=True, slots=True)
class NewEdit:
    """A requested edit. seen: the latest revision that its author saw, 0 for none."""

    first_word: int
    last_word: int
    text: str | None
    speaker: str | None
    seen: int
    author: str


def edits_of(tx: Connection, job_id: str) -> list[Edit]:
    """All edits of a job, in order."""
    return edits_of_all(tx, [job_id]).get(job_id, [])


def edits_of_all(tx: Connection, job_ids: Sequence[str]) -> dict[str, list[Edit]]:
    """By job the edits, in order, of those of these jobs that have any."""
    rows = tx.execute(
        select(edits).where(edits.c.job_id.in_(job_ids)).order_by(edits.c.job_id, edits.c.revision)
    )
    by_job: dict[str, list[Edit]] = {}
    for row in rows:
        by_job.setdefault(row.job_id, []).append(edit_of(row))
    return by_job


edit_of = reader_of(Edit)


def add_edit(tx: Connection, job_id: str, record: Record, asked: NewEdit) -> Edit:
    """Correct words of a job whose transcript is `record`.

    Raises NotFound, Deleted, InvalidRequest for an edit that does not fit, and EditConflict if the same words
    were changed after the revision that was seen.
    """
    before = lock_edits(tx, job_id)
    refuse_changed(before, asked.first_word, asked.last_word, asked.seen)
    edit = Edit(
        len(before) + 1,
        asked.first_word,
        asked.last_word,
        asked.text,
        asked.speaker,
        asked.author,
        read_clock(tx),
    )
    check_edit(record, before, edit)
    if edit.text is None:  # a correction that it replaces would lose its words
        edit = replace(edit, text=text_in(record, before, edit.first_word, edit.last_word))
    write_edits(tx, job_id, record, before, [edit])
    return edit


def undo_edit(tx: Connection, job_id: str, record: Record, revision: int, author: str) -> Edit:
    """Undo one edit, by a new event.

    Raises NotFound, Deleted, and EditConflict if its words were changed again since.
    """
    before = lock_edits(tx, job_id)
    edit = make_undo(job_id, before, revision, author, read_clock(tx))
    write_edits(tx, job_id, record, before, [edit])
    return edit


def make_undo(job_id: str, before: Sequence[Edit], revision: int, author: str, at: datetime) -> Edit:
    """The event after `before` that undoes one edit. Raises as `undo_edit`."""
    gone = {each.undoes for each in before}
    undoable = [each for each in before if each.revision == revision and each.undoes is None]
    if not undoable or revision in gone:
        raise NotFound(f"Job {job_id} has no edit {revision} that can be undone.")
    later = [
        each
        for each in before
        if each.revision > revision
        and each.undoes is None
        and each.revision not in gone
        and each.touches(undoable[0].first_word, undoable[0].last_word)
    ]
    if later:
        raise EditConflict(later[-1])
    return replace(
        undoable[0],
        revision=len(before) + 1,
        text=None,
        speaker=None,
        author=author,
        created_at=at,
        undoes=revision,
        from_job=None,
        from_revision=None,
    )


def refuse_changed(before: Sequence[Edit], first: int, last: int, seen: int) -> None:
    """Raise EditConflict if any of these words was changed after the revision that was seen."""
    since = [each for each in before if each.revision > seen and each.touches(first, last)]
    if since:
        raise EditConflict(since[-1])


def lock_edits(tx: Connection, job_id: str) -> list[Edit]:
    """The edits of a job, locked until the commit. Raises NotFound and Deleted."""
    tx.execute(select(jobs.c.id).where(jobs.c.id == job_id).with_for_update())
    refuse_deleted(get_job(tx, job_id), Content.TRANSCRIPT)
    return edits_of(tx, job_id)


def write_edits(
    tx: Connection, job_id: str, record: Record, before: Sequence[Edit], new: Sequence[Edit]
) -> None:
    """Write events that follow those `before`, and what follows from all of them together."""
    job = get_job(tx, job_id)
    events = [*before]
    for edit in new:
        events.append(edit)
        names = _names(record, edit) or None
        row = values_of(edit, Edit) | {"job_id": job_id, "names": names}
        tx.execute(insert(edits).values(**row, words=count_shown(record, events)))
        _mark_checked(tx, job_id, record, events, edit)
    index_edits(tx, job_id, job.project, record, before, new)
    follow_speakers(tx, job, lambda: apply_edits(record.read(), events))
    enqueue_exports(tx, job)
    for edit in new:
        note_corrected(tx, job, edit)


def _names(record: Record, edit: Edit) -> list[str]:
    heard = [word.text for word in record.words[edit.first_word : edit.last_word + 1]]
    before = record.words[edit.first_word - 1].text if edit.first_word else None
    return find_names(heard, edit.text, before)


def _mark_checked(tx: Connection, job_id: str, record: Record, events: list[Edit], edit: Edit) -> None:
    """Mark the changed passages as checked, and count what is wrong in them now."""
    stands = find_standing_edits(events)
    c = review_passages.c
    rows = select(c.number, c.first_word, c.last_word).where(
        review_passages.c.job_id == job_id,
        review_passages.c.first_word <= edit.last_word,
        review_passages.c.last_word >= edit.first_word,
    )
    for row in tx.execute(rows).all():
        errors = passage_errors(record.words, stands, row.first_word, row.last_word)
        tx.execute(
            update(review_passages)
            .where(review_passages.c.job_id == job_id, review_passages.c.number == row.number)
            .values(
                errors=errors.edits,
                words=errors.words,
                checked_at=edit.created_at,
                checked_by=edit.author,
            )
        )
    update_recording(tx, job_id)
