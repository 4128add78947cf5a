"""Endings that gather while another one is committed, and what keeps a bad one from taking others down."""

import threading

from sqlalchemy import event, select

from ops.testbed.rows import claimed, registered, reread
from ops.testbed.waiting import until
from spool.domain.archive.passages import Passage, Spoken
from spool.domain.jobs import JobState
from spool.store.database import Database
from spool.store.queue.endings import Ending
from spool.tables import workers
from tests.spool.store.queue.test_endings import ending
from worker.service.endings import Endings


def finish_at_once(db: Database, endings: Endings, all_of: list[Ending]) -> tuple[list[bool], int]:
    """What each of them is answered, and how many commits it took; all but the first gather behind it."""
    answers = [False] * len(all_of)

    def finish(number: int) -> None:
        answers[number] = endings.finish(db, all_of[number])

    threads = [threading.Thread(target=finish, args=(number,)) for number in range(len(all_of))]
    commits: list[object] = []
    with db.begin() as tx:
        # The row of the worker, which every ending needs; SQLite has one lock for all.
        tx.execute(select(workers.c.id).with_for_update())
        threads[0].start()
        until(lambda: endings.writing, "the first is being written")
        for thread in threads[1:]:
            thread.start()
        until(lambda: len(endings) == len(all_of) - 1, "the others wait")
        event.listen(db.engine, "commit", commits.append)
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
    unwritable = (Passage.indexed(0, None, 1, (Spoken("\ud800", 0.0, 0.4, 0.9),)),)
    all_of[2] = Ending(claims[2], all_of[2].outcome, unwritable, all_of[2].chunk)
    endings = Endings()
    answers, _ = finish_at_once(db, endings, all_of)
    assert answers == [True, False, False, False]
    assert [reread(db, claim.job.id).state.value for claim in claims] == ["done"] + ["running"] * 3
    with db.read() as tx:
        assert tx.scalar(select(workers.c.busy_ns)) == 1_000_000_001, "nothing of the others was written"
    assert endings.finish(db, all_of[1])
    assert not endings.finish(db, all_of[2])
    assert endings.finish(db, all_of[3])
