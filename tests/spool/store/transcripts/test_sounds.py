"""What was heard, in SQL: packed into segments, cleared after a deletion, checked by the audit."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, func, select, text, update

from ops.testbed.rows import claimed, queued
from ops.testbed.running_api import transcript_of
from spool.audit import audit
from spool.domain import Content
from spool.sounds.pairs import pairs_of_phones
from spool.sounds.phones import PhoneFrames
from spool.sounds.queries import query_of_phones, query_of_words
from spool.store import Database, JobFilter, Outcome, finish_job, mark_deleted
from spool.store.transcripts import sound_search, sounds
from spool.store.transcripts.sound_search import search_sounds
from spool.store.transcripts.sounds import (
    PACK_BYTES,
    ChannelSounds,
    clear_stale,
    pack_sounds,
    write_segment,
    write_sounds,
)
from spool.store.two_threads import two_threads
from spool.tables import sound_blocks, sound_pairs, sound_recordings, sound_segments
from tests.spool.sounds.sounds import DICTIONARY, LEXICON, hear

FRAMES, _ = hear([(1.0, "the old teacher gave us three reasons"), (23.0, "nobody expected music")], 30.0)


def heard(db: Database, frames: PhoneFrames = FRAMES) -> str:
    """The id of a done job with these sounds."""
    job = queued(db)
    claim = claimed(db, job.id)
    transcript = transcript_of(job.id, ("the", "old", "teacher"))
    outcome = Outcome(30.0, f"jobs/{job.id}/t.json", "0" * 64, 1.0, len(transcript.words))
    with db.begin() as tx:
        finish_job(tx, claim, outcome)
        write_sounds(tx, job.id, job.project, [ChannelSounds.of(frames)])
    return job.id


def bits(db: Database) -> int:
    """Of the pairs of "expected" in all segments."""
    asked = pairs_of_phones(LEXICON.pronounce("expected")[0])
    with db.read() as tx:
        rows = tx.scalars(select(sound_pairs.c.bits).where(sound_pairs.c.pair.in_(asked)))
        return sum(each.bit_count() for row in rows for each in row)


def test_channels_are_packed_and_cleared_when_they_are_deleted(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [heard(db), heard(db)]
    with db.begin() as tx:
        assert pack_sounds(tx) == 0, "too few"
    monkeypatch.setattr(sounds, "PACK_BYTES", 4)
    with db.begin() as tx:
        assert pack_sounds(tx) == 2
        assert pack_sounds(tx) == 0
    with db.read() as tx:
        rows = tx.execute(select(sound_recordings).order_by(sound_recordings.c.first_byte)).all()
        assert [(row.first_byte, row.width, row.pairs) for row in rows] == [(0, 2, None), (2, 2, None)]
    both = bits(db)
    assert both > 0
    with db.begin() as tx:
        assert clear_stale(tx) == 0
        mark_deleted(tx, ids[:1], Content.TRANSCRIPT, "operator")
    with db.begin() as tx:
        assert clear_stale(tx) == 1
        assert clear_stale(tx) == 0
    assert 2 * bits(db) == both
    with db.begin() as tx:
        mark_deleted(tx, ids[1:], Content.TRANSCRIPT, "operator")
        assert clear_stale(tx) == 1
        for table in (sound_blocks, sound_recordings, sound_segments, sound_pairs):
            assert tx.scalar(select(func.count()).select_from(table)) == 0


def test_a_segment_is_no_wider_than_a_page_holds_unless_one_channel_is(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        heard(db)
    for most, packed in ((5, 2), (1, 1), (1, 1), (1, 0)):
        monkeypatch.setattr(sounds, "PACK_BYTES", most)
        with db.begin() as tx:
            assert pack_sounds(tx) == packed
    with db.read() as tx:
        assert list(tx.scalars(select(sound_segments.c.width))) == [4, 2, 2]


def test_postgresql_keeps_the_rows_of_a_segment_whole(postgres_url: str) -> None:
    db = Database(postgres_url)
    with db.begin() as tx:
        write_segment(tx, "archive", np.full((3, PACK_BYTES), 170, np.uint8))
    pages = "SELECT pg_relation_size(oid) / 8192, pg_relation_size(reltoastrelid) / 8192 FROM pg_class"
    with db.read() as tx:
        assert tx.execute(text(f"{pages} WHERE relname = 'sound_pairs'")).one() == (3, 0)
    db.close()


def test_a_name_is_found_in_packed_and_in_loose_channels(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sounds, "PACK_BYTES", 2)
    packed = [heard(db), heard(db)]
    with db.begin() as tx:
        assert [pack_sounds(tx), pack_sounds(tx)] == [1, 1], "a segment each"
    silent, _ = hear([(4.0, "the old teacher gave us three reasons")], 30.0)
    other, loose = heard(db, silent), heard(db)
    query = query_of_words("expected", LEXICON)
    assert query.source == "dictionary"
    with db.read() as tx:
        found = search_sounds(tx, query, JobFilter())
        own = search_sounds(tx, query, JobFilter(project="nobodys"))
        some = search_sounds(tx, query, JobFilter(created_from=datetime(2999, 1, 1, tzinfo=UTC)))
    best = {hit.job.id: hit for hit in found.hits[:3]}
    assert best.keys() == {*packed, loose}
    assert all(23.0 <= hit.start < hit.end <= 25.0 for hit in best.values())
    assert all(hit.score > other_hit.score for hit in best.values() for other_hit in found.hits[3:])
    assert other not in best
    assert (own.hits, own.hours) == ((), 0.0)
    assert (some.hits, some.hours) == ((), 0.0)
    with db.begin() as tx:
        mark_deleted(tx, packed[:1], Content.TRANSCRIPT, "operator")
    with db.read() as tx:
        left = search_sounds(tx, query, JobFilter()).hits
    assert {hit.job.id for hit in left[:2]} == {packed[1], loose}
    assert packed[0] not in {hit.job.id for hit in left}


QUERIES = (
    query_of_words("expected", LEXICON),
    query_of_words("remember to", LEXICON),
    query_of_words("close", LEXICON),
    query_of_phones("K AA T T AH N"),
    query_of_words("Okonkwo", None),
)
HITS = Path(__file__).with_name("sound_hits.json")


def search_archive(db: Database, monkeypatch: pytest.MonkeyPatch) -> list[list[list[float]]]:
    """The hits of the queries in forty recordings of a minute, the first half of them packed: number of the
    recording, times and score of each. Few cells are aligned, so that the index decides, too."""
    monkeypatch.setattr(sounds, "PACK_BYTES", 40)
    monkeypatch.setattr(sound_search, "CANDIDATES", 150)
    rng = np.random.default_rng(11)
    words = sorted(line.split()[0] for line in DICTIONARY.split("\n") if line and "(" not in line)
    numbers = {}
    for number in range(40):
        said = [(at, " ".join(rng.choice(words, 3))) for at in np.arange(0.5, 55, 2.5).tolist()]
        numbers[heard(db, hear(said, 60.0, seed=number)[0])] = number
        if number < 20:
            with db.begin() as tx:
                pack_sounds(tx)
    found = []
    with db.read() as tx:
        for query in QUERIES:
            hits = search_sounds(tx, query, JobFilter(), limit=30).hits
            with two_threads(tx):  # so that the search has one thread
                assert search_sounds(tx, query, JobFilter(), limit=30).hits == hits
            found.append([[numbers[hit.job.id], hit.start, hit.end, round(hit.score, 4)] for hit in hits])
    return found


def test_the_hits_are_those_of_the_first_search_by_sound(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Written by the code of 2026-11-27, before it was made faster.
    recorded = json.loads(HITS.read_text(encoding="utf-8"))
    assert search_archive(db, monkeypatch) == recorded


def test_what_is_packed_during_a_search_is_found_as_before(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sounds, "PACK_BYTES", 2)
    ids = {heard(db), heard(db)}
    read = sound_search._Index.read

    def pack_first(*given: Any) -> Any:
        with db.begin() as tx:
            assert pack_sounds(tx) == 1
        return read(*given)

    monkeypatch.setattr(sound_search._Index, "read", pack_first)
    for _ in ids:
        with db.read() as tx:
            found = search_sounds(tx, QUERIES[0], JobFilter())
        assert {hit.job.id for hit in found.hits[:2]} == ids
        assert all(23.0 <= hit.start < hit.end <= 25.0 for hit in found.hits[:2])


def test_the_audit_names_damaged_and_missing_blocks(db: Database) -> None:
    job_id = heard(db)

    def told() -> list[str]:
        return [breach.message for breach in audit(db, None).breaches if breach.rule == "sounds"]

    assert told() == []
    c = sound_blocks.c
    with db.begin() as tx:
        block = tx.scalar(select(c.block).where(c.job_id == job_id, c.number == 1)) or b""
        tx.execute(update(sound_blocks).where(c.number == 1).values(block=block[:-1] + b"\x00"))
    assert told() == ["Block 1 of channel 0 of what was heard in it is damaged: its checksum does not match."]
    with db.begin() as tx:
        tx.execute(delete(sound_blocks).where(c.number == 0))
    assert told() == ["Block 1 of channel 0 of what was heard in it has none before it."]
