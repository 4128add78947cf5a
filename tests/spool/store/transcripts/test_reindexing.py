"""Corrections leave in the search what writing the corrected transcript anew would, on both databases."""

from concurrent.futures import ThreadPoolExecutor, wait
from random import Random
from threading import Event
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, select, text

from ops.bench.page import long_transcript
from ops.testbed.random_transcripts import LABELS, draw_edit, draw_transcript
from ops.testbed.rows import claimed, queued
from ops.testbed.running_api import transcript_of
from spool.domain import Transcript, WholeRecord, apply_edits, parse_query, passages_of
from spool.errors import Conflict, InvalidRequest, NotFound
from spool.formats import open_record, render_bytes
from spool.store import (
    Database,
    Hit,
    JobFilter,
    NewEdit,
    Outcome,
    TranscriptSearch,
    add_edit,
    edits_of,
    finish_job,
    search_transcripts,
)
from spool.store.transcripts.edits import undo_edit
from spool.store.transcripts.passages import GAP, JobPassages, drop_passages, write_passages
from spool.store.transcripts.reindexing import index_words
from spool.tables import passage_words, passages

_UNEQUAL = {"id", "job_id"}
_ASKED = ("light", '"and the"', "kowalsky~", "kow*", "日本 語")


def finished(db: Database, transcript: Transcript) -> str:
    """A job that is done, with these words in the search."""
    job_id = queued(db).id
    claim = claimed(db, job_id)
    outcome = Outcome(30.0, f"jobs/{job_id}/t.json", "0" * 64, 1.0, len(transcript.words))
    with db.begin() as tx:
        finish_job(tx, claim, outcome, passages_of(transcript))
    return job_id


def read_rows(tx: Connection, job_id: str) -> list[dict[str, Any]]:
    """The job's passages in order, every column as the database has it."""
    own = text("SELECT * FROM passages WHERE job_id = :job ORDER BY id DESC").bindparams(job=job_id)
    return [dict(row._mapping) for row in tx.execute(own)]


def read_words(tx: Connection, job_id: str) -> set[tuple[str, str, str]]:
    c = passage_words.c
    own = select(c.project, c.sound, c.token).where(c.job_id == job_id)
    return {(project, sound, token) for project, sound, token in tx.execute(own)}


def assert_as_written_anew(db: Database, job_id: str, transcript: Transcript, other: str) -> None:
    """other: a job without passages."""
    with db.begin() as tx:
        write_passages(tx, JobPassages(other, "default", passages_of(transcript)))
        now, anew = (
            [{name: value for name, value in row.items() if name not in _UNEQUAL} for row in rows]
            for rows in (read_rows(tx, job_id), read_rows(tx, other))
        )
        assert now == anew
        assert read_words(tx, job_id) == read_words(tx, other)
        for asked in _ASKED:
            wanted = TranscriptSearch(parse_query(asked), JobFilter(), alternatives=True)
            hits = search_transcripts(tx, wanted, limit=200).items
            own, others = (
                [(hit.passage, hit.places) for hit in hits if hit.job.id == one] for one in (job_id, other)
            )
            assert own == others or len(hits) == 200, asked
        if tx.dialect.name == "sqlite":  # the index has the terms of all rows, and no others
            for index in ("passage_index", "passage_index_alternatives"):
                check = f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)"
                tx.exec_driver_sql(check)
        drop_passages(tx, [other])


def change(db: Database, job_id: str, transcript: Transcript, draw: Random) -> None:
    """One correction or undo, as far as it fits."""
    record = open_record(render_bytes(transcript, "json"))
    with db.begin() as tx:
        before = edits_of(tx, job_id)
        asked = draw_edit(draw, len(transcript.words), len(before) + 1)
        try:
            if before and draw.random() < 0.3:
                undo_edit(tx, job_id, record, draw.choice(before).revision, "Cy")
            else:
                new = NewEdit(asked.first_word, asked.last_word, asked.text, asked.speaker, len(before), "Bo")
                add_edit(tx, job_id, record, new)
        except (Conflict, InvalidRequest, NotFound):
            return


def other_speakers(transcript: Transcript, draw: Random) -> Transcript:
    """As after speakers were found again."""
    words = [
        word.model_copy(update={"speaker": draw.choice(LABELS) if draw.random() < 0.1 else word.speaker})
        for word in transcript.words
    ]
    return transcript.model_copy(update={"words": tuple(words)})


@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 2**32))
def test_any_corrections_leave_what_writing_anew_would(db: Database, seed: int) -> None:
    draw = Random(seed)
    transcript = draw_transcript("job_1", draw, nbest=draw.random() < 0.2)
    if not transcript.words:
        return
    job_id, other = finished(db, transcript), queued(db).id
    for _ in range(6):
        if draw.random() < 0.1:
            transcript = other_speakers(transcript, draw)
            with db.begin() as tx:
                events = edits_of(tx, job_id)
                index_words(tx, job_id, "default", apply_edits(transcript, events))
        else:
            change(db, job_id, transcript, draw)
        with db.read() as tx:
            events = edits_of(tx, job_id)
        assert_as_written_anew(db, job_id, apply_edits(transcript, events), other)
    with db.begin() as tx:
        drop_passages(tx, [job_id])


def test_other_passages_keep_their_rows(db: Database) -> None:
    transcript = long_transcript("job_1", 2000)
    job_id = finished(db, transcript)
    record = open_record(render_bytes(transcript, "json"))
    with db.read() as tx:
        before = {row["id"]: row for row in read_rows(tx, job_id)}
    with db.begin() as tx:
        add_edit(tx, job_id, record, NewEdit(1000, 1000, "Okonkwo", None, 0, "Bo"))
    with db.read() as tx:
        after = {row["id"]: row for row in read_rows(tx, job_id)}
    assert after.keys() == before.keys()
    assert 1 <= sum(after[number] != before[number] for number in after) <= 2
    with db.begin() as tx:  # so that a passage has too many words, and becomes two
        add_edit(tx, job_id, record, NewEdit(1000, 1000, "one two " * 30, None, 1, "Bo"))
    with db.read() as tx:
        longer = {row["id"] for row in read_rows(tx, job_id)}
    assert len(longer - after.keys()) >= 1
    assert len(after.keys() - longer) <= 1
    assert_as_written_anew(db, job_id, apply_edits(transcript, _events(db, job_id)), queued(db).id)


def test_where_no_ids_are_left_all_passages_are_written_anew(db: Database) -> None:
    # Given passages whose ids follow each other, between other jobs'
    transcript = long_transcript("job_1", 400)
    job_id = finished(db, transcript)
    with db.begin() as tx:
        rows = read_rows(tx, job_id)
        names = [name for name in rows[0] if name != "id"]
        tx.execute(passages.delete().where(passages.c.job_id == job_id))
        for at, row in enumerate(reversed(rows)):
            columns = ", ".join(names)
            values = ", ".join(f":{name}" for name in names)
            written = f"INSERT INTO passages (id, {columns}) VALUES ({10_000 + at}, {values})"
            tx.execute(text(written), row)
    # When a correction makes two of one
    with db.begin() as tx:
        own = WholeRecord(transcript)
        add_edit(tx, job_id, own, NewEdit(200, 200, "one two " * 30, None, 0, "Bo"))
    assert_as_written_anew(db, job_id, apply_edits(transcript, _events(db, job_id)), queued(db).id)
    with db.read() as tx:
        numbers = [row["id"] for row in read_rows(tx, job_id)]
    assert numbers == sorted(numbers, reverse=True)
    assert all(number % GAP == 0 for number in numbers)


def test_people_correct_at_once_while_others_search(db: Database) -> None:
    # Given a word in every passage that nobody corrects
    words = ["lighthouse" if at % 20 == 0 else f"w{at}" for at in range(2000)]
    transcript = transcript_of("job_1", tuple(words))
    job_id = finished(db, transcript)
    record = open_record(render_bytes(transcript, "json"))
    expected = len(passages_of(transcript))
    done = Event()

    def correct(person: int) -> None:
        for at in range(4):
            word = 40 * (3 * at + person) + 5
            with db.begin() as tx:
                add_edit(tx, job_id, record, NewEdit(word, word, f"Okonkwo {person}", None, 100, "Bo"))

    def search() -> set[int]:
        wanted = TranscriptSearch(parse_query("lighthouse"), JobFilter())
        found = set()
        while not done.wait(0.1):
            with db.read() as tx:
                found.add(sum(each.own for each in (hit.passage for hit in _all_hits(tx, wanted))) // 1000)
        return found

    with ThreadPoolExecutor(4) as threads:
        reader = threads.submit(search)
        people = [threads.submit(correct, person) for person in range(3)]
        wait(people)
        done.set()
    for each in people:
        each.result()
    # Then a reader saw the whole transcript each time, as long as it was or became
    assert reader.result() == {2}
    events = _events(db, job_id)
    assert len(events) == 12
    assert expected <= len(passages_of(apply_edits(transcript, events)))
    assert_as_written_anew(db, job_id, apply_edits(transcript, events), queued(db).id)


def _all_hits(tx: Connection, wanted: TranscriptSearch) -> list[Hit]:
    page = search_transcripts(tx, wanted, limit=200)
    assert page.next_cursor is None
    return list(page.items)


def _events(db: Database, job_id: str) -> Any:
    with db.read() as tx:
        return edits_of(tx, job_id)
