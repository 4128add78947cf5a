"""Endings that gather while another one is committed, and what keeps a bad one from taking others down."""

import threading
from dataclasses import replace

from sqlalchemy import Connection, event, select

from ops.testbed.rows import claimed, registered, reread
from ops.testbed.running_api import transcript_of
from ops.testbed.waiting import until
from spool.domain import JobState, Passage, Spoken
from spool.store import Database, Ending
from spool.tables import review_passages, workers
from tests.spool.store.queue.test_endings import ending
from worker.service import Endings

HEARD = transcript_of("job", ("green", "lamp"))


def write_commits(db: Database) -> list[Connection]:
    """Filled with the commits from now on that are not of a read-only transaction."""
    commits: list[Connection] = []

    def note(connection: Connection) -> None:
        if not connection.get_execution_options().get("spool_read_only"):
            commits.append(connection)

    event.listen(db.engine, "commit", note)
    return commits


def finish_at_once(db: Database, endings: Endings, all_of: list[Ending]) -> tuple[list[bool], int]:
    """What each of them is answered, and how many commits it took; all but the first gather behind it."""
    answers = [False] * len(all_of)

    def finish(number: int) -> None:
        answers[number] = endings.finish(db, all_of[number], HEARD)

    threads = [threading.Thread(target=finish, args=(number,)) for number in range(len(all_of))]
    with db.begin() as tx:
        # The row of the worker, which every ending needs; SQLite has one lock for all.
        tx.execute(select(workers.c.id).with_for_update())
        threads[0].start()
        until(lambda: endings.writing, "the first is being written")
        for thread in threads[1:]:
            thread.start()
        until(lambda: len(endings) == len(all_of) - 1, "the others wait")
        commits = write_commits(db)
    for thread in threads:
        thread.join()
    return answers, len(commits) - 1


def test_those_that_gather_are_one_commit(db: Database) -> None:
    worker = registered(db)
    all_of = [ending(claimed(db, worker_id=worker)) for _ in range(5)]
    answers, commits = finish_at_once(db, Endings(), all_of)
    assert answers == [True] * 5
    assert commits == 2
    assert {reread(db, one.claim.job.id).state for one in all_of} == {JobState.DONE}


def test_those_that_are_too_many_for_one_commit_take_several(db: Database) -> None:
    worker = registered(db)
    all_of = [ending(claimed(db, worker_id=worker)) for _ in range(6)]
    answers, commits = finish_at_once(db, Endings(most=2), all_of)
    assert answers == [True] * 6
    assert commits == 4
    assert {reread(db, one.claim.job.id).state for one in all_of} == {JobState.DONE}


def test_a_bad_ending_leaves_each_to_its_own_thread(db: Database) -> None:
    worker = registered(db)
    claims = [claimed(db, worker_id=worker) for _ in range(4)]
    all_of = [ending(claim) for claim in claims]
    unwritable = (Passage.of(0, None, 1, (Spoken("\ud800", 0.0, 0.4, 0.9),)),)
    all_of[2] = Ending(claims[2], all_of[2].outcome, unwritable, all_of[2].chunk)
    endings = Endings()
    answers, _ = finish_at_once(db, endings, all_of)
    assert answers == [True, False, False, False]
    assert [reread(db, claim.job.id).state.value for claim in claims] == ["done"] + ["running"] * 3
    with db.read() as tx:
        assert tx.scalar(select(workers.c.busy_ns)) == 1_000_000_001, "nothing of the others was written"
    assert endings.finish(db, all_of[1], HEARD)
    assert not endings.finish(db, all_of[2], HEARD)
    assert endings.finish(db, all_of[3], HEARD)


def test_one_waits_for_others_that_end_soon(db: Database) -> None:
    worker = registered(db)
    all_of = [ending(claimed(db, worker_id=worker)) for _ in range(2)]
    endings, answers = Endings(gather_seconds=2.0), [False] * 2

    def finish(number: int) -> None:
        answers[number] = endings.finish(db, all_of[number], HEARD, gather=True)

    threads = [threading.Thread(target=finish, args=(number,)) for number in range(2)]
    commits = write_commits(db)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 2
    assert len(commits) == 1


def test_each_is_compared_with_the_version_before_it(db: Database) -> None:
    worker = registered(db)
    all_of = [ending(claimed(db, worker_id=worker)) for _ in range(4)]
    new = replace(all_of[3], outcome=replace(all_of[3].outcome, content_sha256="c" * 64))
    answers, _ = finish_at_once(db, Endings(), [*all_of[:3], new])
    assert answers == [True] * 4
    with db.read() as tx:
        doubts = dict(tx.execute(select(review_passages.c.job_id, review_passages.c.versions)).all())
    # The one before has "red lamp"; the first has none before it, and the last is another recording.
    assert [doubts[one.claim.job.id] for one in all_of] == [0.0, 0.5, 0.5, 0.0]
