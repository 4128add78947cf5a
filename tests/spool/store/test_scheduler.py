"""Which job a worker gets: classes, turns of projects, deadlines, places; on SQLite and on PostgreSQL."""

import itertools
import threading
from collections import Counter, deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text, update

from ops.testbed.rows import let_lapse, queued, reread
from spool.domain import HIGH, LOW, NEVER, NORMAL, JobState, Offer, Quota, Rules, Source
from spool.store import (
    AGED_EACH,
    SHORT_BYTES,
    UNKNOWN_SECONDS,
    Claim,
    ClaimRequest,
    Database,
    NeedsAlone,
    SweepLimits,
    claim_alone,
    claim_next,
    fail_job,
    goes_before,
    hand_back,
    retry_job,
    seconds_from_now,
    sweep,
)
from spool.tables import event_inbox, jobs, turns
from tests.spool.store.choosing import ASKER, RULES, batch, finish, nothing, order, taken


def placed(db: Database, job_id: str, seconds_ago: float) -> None:
    """As if the job had come so long ago."""
    place = int((datetime.now(UTC).timestamp() - seconds_ago) * 1e6)
    with db.begin() as tx:
        tx.execute(update(jobs).where(jobs.c.id == job_id).values(queue_position=place))


def soon(hours: float) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


def test_a_class_goes_before_the_next_and_a_class_in_order_of_coming(db: Database) -> None:
    made = {(n, p): queued(db, priority=p).id for n in range(2) for p in (LOW, NORMAL, HIGH)}
    for (number, _), job_id in made.items():
        placed(db, job_id, 100 - number)
    assert order(db) == [made[n, p] for p in (HIGH, NORMAL, LOW) for n in (0, 1)]


def test_the_earliest_deadline_goes_first_within_its_class(db: Database) -> None:
    plain = queued(db).id
    later = queued(db, deadline=soon(3)).id
    sooner = queued(db, deadline=soon(2)).id
    high = queued(db, priority=HIGH).id
    out_of_reach = queued(db, deadline=soon(1)).id
    with db.begin() as tx:
        tx.execute(update(jobs).where(jobs.c.id == out_of_reach).values(deadline_rank=NEVER))
    assert order(db) == [high, sooner, later, plain, out_of_reach]


def test_what_was_interrupted_keeps_its_place_and_what_had_its_turn_goes_to_the_end(db: Database) -> None:
    first, second, third = (queued(db).id for _ in range(3))
    for ago, job_id in enumerate([third, second, first], 1):
        placed(db, job_id, ago)

    drained = taken(db)
    with db.begin() as tx:
        hand_back(tx, drained)
    assert taken(db).job.id == first, "a drain costs no place"
    let_lapse(db, first)
    with db.begin() as tx:
        assert sweep(tx, SweepLimits()).requeued == (first,)
    again = taken(db)
    assert again.job.id == first, "nor does a worker's death"
    with db.begin() as tx:
        hand_back(tx, again, to_the_end=True)
    assert order(db) == [second, third, first]


def test_a_pause_is_waited_out(db: Database) -> None:
    queued(db)
    paused = taken(db)
    with db.begin() as tx:
        hand_back(tx, paused, delay_seconds=60)
    other = queued(db).id
    assert order(db) == [other]
    with db.begin() as tx:
        tx.execute(update(jobs).values(not_before=seconds_from_now(-1)))
    assert taken(db).job.id == paused.job.id


def test_a_worker_gets_what_is_pinned_to_it_and_nobody_elses(db: Database) -> None:
    queued(db, pool="metal")
    queued(db, worker="other")
    plain, mine = queued(db).id, queued(db, worker="mini", priority=HIGH).id
    assert order(db) == [mine, plain]


def test_ten_jobs_do_not_wait_for_a_thousand_of_another_project(db: Database) -> None:
    batch(db, "archive", 1000)
    for _ in range(5):
        finish(db, taken(db))
    small = {queued(db, project="small").id for _ in range(10)}
    began = []
    for _ in range(21):
        claim = taken(db)
        began.append(claim.job.project)
        finish(db, claim)
    assert Counter(began)["small"] == len(small) == 10
    assert began[:4].count("small") == 2, "from the first turn on"


def test_a_project_with_long_recordings_gets_no_more_audio_and_one_with_a_share_its_share(
    db: Database,
) -> None:
    rules = Rules(shares={"double": 2.0})
    lengths = {"long": 3600.0, "short": 300.0, "double": 300.0}
    for project in lengths:
        batch(db, project, 200)
    had: Counter[str] = Counter()
    for _ in range(250):
        claim = taken(db, rules)
        finish(db, claim, lengths[claim.job.project])
        had[claim.job.project] += int(lengths[claim.job.project])
    assert abs(had["long"] - had["short"]) <= 3600
    assert abs(had["double"] - 2 * had["short"]) <= 2 * 3600


def test_recordings_of_mixed_lengths_get_as_much_audio_as_equal_ones(db: Database) -> None:
    """Six run at once, and each is charged as the mean: what a short one gives back is not lost."""
    lengths = {"equal": itertools.repeat(100.0), "mixed": itertools.cycle([10.0, 10.0, 10.0, 370.0])}
    for project in lengths:
        batch(db, project, 150)
    had: Counter[str] = Counter()
    running: deque[Claim] = deque()
    for _ in range(200):
        if len(running) == 6:
            ended = running.popleft()
            length = next(lengths[ended.job.project])
            finish(db, ended, length)
            had[ended.job.project] += int(length)
        running.append(taken(db))
    assert abs(had["equal"] - had["mixed"]) <= 2 * 370


def test_who_was_away_is_not_paid_for_it_and_what_was_reused_is_free(db: Database) -> None:
    batch(db, "busy", 50)
    for _ in range(20):
        finish(db, taken(db))
    batch(db, "back", 50)
    began: Counter[str] = Counter()
    for _ in range(10):
        claim = taken(db)
        began[claim.job.project] += 1
        finish(db, claim)
    assert 4 <= began["back"] <= 6, "half, not twenty turns in a row"
    for _ in range(10):
        claim = taken(db)
        began[claim.job.project] += 1
        finish(db, claim, reused="job_x" if claim.job.project == "back" else None)
    assert began["back"] >= 13, "a transcript taken over costs no turn"


def test_what_was_charged_too_much_is_given_back_when_a_job_fails(db: Database) -> None:
    queued(db)
    claim = taken(db)
    with db.read() as tx:
        charged = tx.scalar(select(turns.c.served))
    with db.begin() as tx:
        fail_job(tx, claim, "audio", "No.")
        assert tx.scalar(select(turns.c.served)) == pytest.approx(0.0)
    assert charged
    assert charged > 0
    with db.begin() as tx:
        again = retry_job(tx, claim.job.id)
    assert taken(db).job.id == again.id


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    counts=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    lengths=st.lists(st.sampled_from([5.0, 60.0, 900.0]), min_size=4, max_size=4),
    handed_back=st.sets(st.integers(0, 40)),
)
def test_projects_share_evenly_whatever_they_ask(
    sqlite_url: str, counts: list[int], lengths: list[float], handed_back: set[int]
) -> None:
    """While two projects both have jobs waiting, neither gets more than a job's audio ahead of the other."""
    db = Database(sqlite_url)
    with db.begin() as tx:
        for table in ("outbox", "jobs", "turns"):
            tx.execute(text(f"DELETE FROM {table}"))
    left = {f"p{number}": count for number, count in enumerate(counts)}
    for project, count in left.items():
        with db.begin() as tx:
            tx.execute(turns.insert().values(pool="cpu", project=project, updated_at=seconds_from_now(0)))
        for _ in range(count):
            queued(db, project=project)
            with db.begin() as tx:
                tx.execute(update(jobs).values(audio_seconds=None))
    had: Counter[str] = Counter(dict.fromkeys(left, 0))
    longest = max(*lengths, 300.0)
    for step in range(sum(counts)):
        claim = taken(db)
        project = claim.job.project
        if step in handed_back:
            with db.begin() as tx:
                hand_back(tx, claim)
            continue
        length = lengths[int(project[1:])]
        finish(db, claim, length)
        left[project] -= 1
        had[project] += int(length)
        waiting = [name for name, count in left.items() if count]
        spread = [had[name] for name in waiting]
        assert not spread or max(spread) - min(spread) <= 2 * longest
    db.close()


def test_low_does_not_starve_and_a_new_high_one_need_not_wait_for_it(db: Database) -> None:
    rules = Rules(aging_seconds=600.0)
    old = [queued(db, priority=LOW).id for _ in range(3)]
    for number, job_id in enumerate(old):
        placed(db, job_id, 7200 - number)
    began = []
    for _ in range(3 * AGED_EACH):
        queued(db, priority=HIGH)
        claim = taken(db, rules)
        finish(db, claim)
        began.append(claim.job.id)
    assert [began.index(job_id) for job_id in old] == [AGED_EACH - 1, 2 * AGED_EACH - 1, 3 * AGED_EACH - 1]


def test_low_that_came_a_moment_ago_does_wait(db: Database) -> None:
    low = queued(db, priority=LOW).id
    high = {queued(db, priority=HIGH).id for _ in range(2 * AGED_EACH)}
    began = order(db)
    assert began[-1] == low
    assert set(began[:-1]) == high


def test_a_job_that_is_claimed_alone_is_charged_and_counts_for_the_quota(db: Database) -> None:
    rules = Rules(quotas={"default": Quota(jobs_in_flight=1)})
    suspect = queued(db).id
    with db.begin() as tx:
        tx.execute(update(jobs).values(crashes=2))
        assert claim_next(tx, ASKER, rules) == NeedsAlone(suspect)
    queued(db)
    other = taken(db, rules)
    with db.begin() as tx:
        assert claim_alone(tx, suspect, ASKER, rules) is None, "another of the project runs now"
    finish(db, other, 60.0)
    with db.begin() as tx:
        claim = claim_alone(tx, suspect, ASKER, rules)
        assert claim is not None
        assert claim.job.forecast_seconds == 60.0
        assert tx.scalar(select(turns.c.served)) == 120.0
        assert claim_alone(tx, suspect, ASKER, rules) is None, "it runs"


def test_a_job_on_its_last_chance_is_offered_alone_and_to_one_at_a_time(db: Database) -> None:
    suspect = queued(db, priority=HIGH).id
    with db.begin() as tx:
        tx.execute(update(jobs).values(crashes=2))
    plain = queued(db).id
    with db.begin() as tx:
        assert claim_next(tx, ASKER, RULES) == NeedsAlone(suspect)
    assert taken(db).job.id == plain, "the others go on meanwhile"
    assert nothing(db)
    with db.begin() as tx:
        tx.execute(update(jobs).values(not_before=None))
    alone = ClaimRequest("wrk_2", "cpu", "mini", 60.0, alone=True)
    assert taken(db, request=alone).job.id == suspect


def test_a_poisonous_job_in_front_is_set_aside_and_the_next_is_taken(db: Database) -> None:
    bad, good = queued(db, priority=HIGH).id, queued(db).id
    with db.begin() as tx:
        tx.execute(update(jobs).where(jobs.c.id == bad).values(crashes=3))
    assert taken(db).job.id == good
    assert reread(db, bad).error_code == "poison"


def test_many_workers_at_once_take_each_job_once_and_in_order(db: Database) -> None:
    low = {queued(db, priority=LOW).id for _ in range(10)}
    high = {queued(db, priority=HIGH).id for _ in range(10)}
    start = threading.Barrier(5)
    took: list[str] = []

    def work(name: str) -> None:
        start.wait()
        took.extend(taken(db, request=ClaimRequest(name, "cpu", name, 60.0)).job.id for _ in range(2))

    threads = [threading.Thread(target=work, args=(f"wrk_{number}",)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(took) == high
    assert len(took) == 10
    assert set(order(db)) == low


def test_a_job_yields_to_those_that_should_go_before_it_and_to_no_others(db: Database) -> None:
    def over(priority: int = NORMAL, rules: Rules = RULES) -> bool:
        with db.read() as tx:
            return goes_before(tx, Offer("cpu", "mini"), "default", priority, rules)

    assert not over()
    queued(db, priority=LOW)
    assert (over(), over(LOW)) == (False, True)
    queued(db, project="other", priority=LOW)
    assert over()
    assert not over(rules=Rules(quotas={"other": Quota(jobs_in_flight=0)}))


# --- several short jobs at once ----------


def short(db: Database, number: int, **fields: Any) -> list[str]:
    """Jobs whose recordings have 100 kB, in the order of their places."""
    return [queued(db, source=Source("file", "file:///a.wav", 100_000), **fields).id for _ in range(number)]


def ids(claim: Claim) -> list[str]:
    return [claim.job.id, *(other.job.id for other in claim.others)]


GREEDY = replace(ASKER, most=4)


def test_several_short_jobs_are_claimed_at_once_in_their_order(db: Database) -> None:
    made = short(db, 6)
    first, rest = taken(db, request=GREEDY), taken(db, request=GREEDY)
    assert ids(first) == made[:4]
    assert ids(rest) == made[4:]
    for claim in (first, *first.others):
        row = reread(db, claim.job.id)
        assert (row.state, row.attempt, row.lease_owner) == (JobState.RUNNING, 1, ASKER.worker_id)
        finish(db, claim)
    assert [reread(db, job_id).state for job_id in made[:4]] == [JobState.DONE] * 4
    with db.read() as tx:
        began = list(tx.scalars(select(event_inbox.c.job_id).where(event_inbox.c.type == "job.started")))
    assert sorted(began) == sorted(made)


@pytest.mark.parametrize(
    ("size", "fields"),
    [(SHORT_BYTES + 1, {}), (None, {}), (100_000, {"priority": LOW}), (100_000, {"deadline": True})],
)
def test_nothing_is_claimed_with_a_long_job_or_one_of_another_class(
    db: Database, size: int | None, fields: dict[str, Any]
) -> None:
    if "deadline" in fields:
        fields = {"deadline": soon(2)}
    (before,) = short(db, 1)
    other = queued(db, source=Source("file", "file:///b.wav", size), **fields).id
    (after,) = short(db, 1)
    claims = [ids(taken(db, request=GREEDY)) for _ in range(2 if fields else 3)]
    if "deadline" in fields:
        assert claims == [[other], [before, after]]
    elif fields:
        assert claims == [[before, after], [other]]
    else:
        assert claims == [[before], [other], [after]], "and none overtakes it"


def test_a_job_that_ran_before_comes_alone(db: Database) -> None:
    first, second, third = short(db, 3)
    drained = taken(db)
    with db.begin() as tx:
        hand_back(tx, drained)
    assert ids(taken(db, request=GREEDY)) == [first]
    assert ids(taken(db, request=GREEDY)) == [second, third]


def test_several_jobs_are_one_turn_that_is_charged_in_full(db: Database) -> None:
    made = short(db, 12, project="many")
    assert ids(taken(db, request=GREEDY)) == made[:4]
    few = [queued(db, project="few").id for _ in range(2)]
    assert ids(taken(db, request=GREEDY)) == [few[0]]
    with db.read() as tx:
        row = tx.execute(select(turns).where(turns.c.project == "many")).one()
    assert (row.claims, row.served - row.start) == (4, 4 * UNKNOWN_SECONDS)
    assert taken(db, request=GREEDY).job.id == few[1], "four jobs were charged, and one of the other's"


def test_the_aged_job_is_not_stepped_over(db: Database) -> None:
    rules = Rules(aging_seconds=60)
    old = queued(db, priority=LOW).id
    placed(db, old, 3600)
    short(db, 40, priority=HIGH)
    claimed = []
    while old not in claimed:
        claimed += ids(taken(db, rules, GREEDY))
    assert len(claimed) == AGED_EACH


def test_a_project_with_a_quota_gets_one_at_a_time(db: Database) -> None:
    rules = Rules(quotas={"limited": Quota(jobs_in_flight=2)})
    short(db, 4, project="limited")
    assert [len(ids(taken(db, rules, GREEDY))) for _ in range(2)] == [1, 1]
    assert nothing(db, rules, GREEDY)


def test_many_workers_that_take_several_take_each_job_once(db: Database) -> None:
    made = short(db, 40)
    claimed: list[str] = []

    def work(number: int) -> None:
        request = replace(GREEDY, worker_id=f"wrk_{number}", name=f"w{number}")
        while True:
            with db.begin() as tx:
                claim = claim_next(tx, request, RULES)
            if not isinstance(claim, Claim):
                return
            claimed.extend(ids(claim))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(made)
