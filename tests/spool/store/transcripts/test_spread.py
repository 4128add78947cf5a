"""A correction spread to words that somebody gave another speaker."""

from ops.testbed.rows import claimed, queued
from ops.testbed.running_api import transcript_of
from spool.domain.archive.edits import apply_edits, find_standing_edits, recognised_number
from spool.domain.archive.record import WholeRecord
from spool.domain.transcript import Speaker
from spool.store import Database, NewEdit, Outcome, add_edit, edits_of, finish_job
from spool.store.transcripts.spread import Source, Wanted, jobs_spread_to, spread_to, undo_spread

WORDS = ("so", "oh", "conquer", "and", "oh", "conquer", "left")
SOURCE = Source("job_0", 3)


def test_who_speaks_stays_corrected(db: Database) -> None:
    job = queued(db)
    speakers = tuple(Speaker(label=f"speaker_{at}", talk_seconds=1.0, words=0) for at in range(2))
    record = transcript_of(job.id, WORDS).model_copy(update={"speakers": speakers})
    claim = claimed(db, job.id)
    places = [Wanted(first, first + 1, "oh conquer", "Okonkwo", 1) for first in (1, 4)]
    with db.begin() as tx:
        finish_job(tx, claim, Outcome(3.5, f"jobs/{job.id}/t.json", "0" * 64, 1.0, len(WORDS)))
        spoken = add_edit(tx, job.id, WholeRecord(record), NewEdit(0, 5, None, "speaker_1", 0, "Bo"))
    before = apply_edits(record, [spoken])
    with db.begin() as tx:
        new, refused = spread_to(tx, job.id, WholeRecord(record), places, SOURCE, "Cy")
        assert refused == []
    [edit] = new
    assert (edit.first_word, edit.last_word, edit.text) == (0, 5, "so Okonkwo and Okonkwo")
    with db.begin() as tx:
        own = edits_of(tx, job.id)
        after = apply_edits(record, own)
        assert [word.speaker for word in after.words] == ["speaker_1"] * 4 + [None]
        assert [recognised_number(find_standing_edits(own), at) for at in range(5)] == [None] * 4 + [6]
        assert jobs_spread_to(tx, SOURCE) == [job.id]
        undone, refused = undo_spread(tx, job.id, WholeRecord(record), SOURCE, "Cy")
        assert ([each.undoes for each in undone], refused) == ([2], [])
        assert apply_edits(record, edits_of(tx, job.id)) == before
        assert undo_spread(tx, job.id, WholeRecord(record), SOURCE, "Cy") == ([], [])


def test_words_across_speakers_are_left_to_a_person(db: Database) -> None:
    job = queued(db)
    speakers = tuple(Speaker(label=f"speaker_{at}", talk_seconds=1.0, words=0) for at in range(2))
    record = transcript_of(job.id, WORDS).model_copy(update={"speakers": speakers})
    claim = claimed(db, job.id)
    with db.begin() as tx:
        finish_job(tx, claim, Outcome(3.5, f"jobs/{job.id}/t.json", "0" * 64, 1.0, len(WORDS)))
        add_edit(tx, job.id, WholeRecord(record), NewEdit(0, 1, None, "speaker_1", 0, "Bo"))
        over = [Wanted(1, 2, "oh conquer", "Okonkwo", 1), Wanted(6, 9, "left", "Okonkwo", 1)]
        new, refused = spread_to(tx, job.id, WholeRecord(record), over, SOURCE, "Cy")
    assert new == []
    assert [each.reason for each in refused] == [
        "Words 1 to 2 were given different speakers; correct them by themselves.",
        "Words 6 to 9 are not \u201cleft\u201d; search for places again.",
    ]
