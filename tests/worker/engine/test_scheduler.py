"""The batching policy, as pure data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.domain import HIGH, LOW
from worker.engine import (
    FIRST_SAMPLES,
    BatchLimits,
    BatchPace,
    QueuedUtterance,
    UtteranceQueue,
    split_exactly,
)
from worker.models import BatchCost

LIMITS = BatchLimits(utterances=8, samples=8 * 100, padding=0.25)


def waiting(
    ticket: int, job: str = "a", length: int = 100, group: str = "m", alone: bool = False
) -> QueuedUtterance:
    return QueuedUtterance(ticket, job, group, length, alone)


utterances = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 400), st.sampled_from(["m", "n"]), st.booleans()),
    max_size=60,
).map(
    lambda rows: [
        QueuedUtterance(i, job, group, length, alone) for i, (job, length, group, alone) in enumerate(rows)
    ]
)


def filled(items: list[QueuedUtterance], limits: BatchLimits = LIMITS) -> UtteranceQueue:
    line = UtteranceQueue(limits)
    for item in items:
        line.add(item)
    return line


def drain(line: UtteranceQueue) -> list[list[QueuedUtterance]]:
    batches = []
    while len(line):
        batches.append(line.next_batch())
        assert batches[-1], "something waits, so there is a batch"
    return batches


def test_who_waits_for_an_answer_goes_before_what_was_claimed_of_a_batch() -> None:
    short = [waiting(n, f"job-{n}") for n in range(40)]
    urgent = QueuedUtterance(40, "asked", "other options", 100, priority=HIGH)
    late = QueuedUtterance(41, "late", "m", 100, priority=LOW)
    batches = drain(filled([*short, urgent, late]))
    assert batches[0] == [urgent]
    assert batches[-1][-1] == late
    mixed = drain(filled([*short, QueuedUtterance(40, "asked", "m", 100, priority=HIGH)]))
    assert [item.ticket for item in mixed[0]] == [40, *range(7)]


def test_a_long_job_of_a_high_priority_takes_turns_with_others() -> None:
    long = [QueuedUtterance(n, "long", "m", 100, priority=HIGH) for n in range(40)]
    batches = drain(filled([*long, *(waiting(40 + n, "b") for n in range(8))]))
    assert sum(item.job == "b" for item in batches[0]) == 4


@given(utterances)
def test_every_utterance_is_in_exactly_one_batch(items: list[QueuedUtterance]) -> None:
    taken = [item for batch in drain(filled(items)) for item in batch]
    assert sorted(item.ticket for item in taken) == [item.ticket for item in items]


@given(utterances)
def test_a_batch_keeps_to_its_limits(items: list[QueuedUtterance]) -> None:
    for batch in drain(filled(items)):
        longest = max(item.length for item in batch)
        padded = longest * len(batch)
        assert len({item.group for item in batch}) == 1
        assert len(batch) <= LIMITS.utterances
        if len(batch) > 1:
            assert padded <= LIMITS.samples
            assert padded - sum(item.length for item in batch) <= LIMITS.padding * padded
            assert not any(item.alone for item in batch)


@given(utterances)
def test_a_job_is_served_in_its_own_order_when_lengths_allow(items: list[QueuedUtterance]) -> None:
    equal = [QueuedUtterance(item.ticket, item.job, "m", 100) for item in items]
    taken = [item for batch in drain(filled(equal)) for item in batch]
    for job in "abcd":
        tickets = [item.ticket for item in taken if item.job == job]
        assert tickets == sorted(tickets)


@given(st.lists(st.integers(1, 60), min_size=2, max_size=5))
def test_no_job_gets_more_than_one_utterance_ahead_of_another(counts: list[int]) -> None:
    tickets = iter(range(10_000))
    line = filled([waiting(next(tickets), f"job{j}") for j, count in enumerate(counts) for _ in range(count)])
    left = {f"job{j}": count for j, count in enumerate(counts)}
    given_out = dict.fromkeys(left, 0)
    while len(line):
        for item in line.next_batch():
            given_out[item.job] += 1
            left[item.job] -= 1
        backlogged = [given_out[job] for job in left if left[job]]
        assert max(backlogged, default=0) - min(backlogged, default=0) <= 1


def test_a_newcomer_is_in_the_very_next_batch_of_a_long_job() -> None:
    line = filled([waiting(i, "ten hours") for i in range(1000)])
    for _ in range(5):
        line.next_batch()
    line.add(waiting(2000, "three minutes"))
    assert line.next_batch()[0].job == "three minutes"


def test_a_job_that_was_away_does_not_cash_in_the_time() -> None:
    line = filled([waiting(i, "steady") for i in range(200)] + [waiting(200, "visitor")])
    for _ in range(6):
        line.next_batch()
    for ticket in range(300, 400):
        line.add(waiting(ticket, "visitor"))
    batches = [line.next_batch() for _ in range(4)]
    visitors = sum(item.job == "visitor" for batch in batches for item in batch)
    assert 16 <= visitors <= 16 + LIMITS.utterances // 2, "half of 32, and at most a batch's head start"


def test_an_utterance_longer_than_the_budget_still_runs() -> None:
    batches = drain(filled([waiting(1, length=10_000), waiting(2, length=10_000)]))
    assert [len(batch) for batch in batches] == [1, 1]


def test_lengths_that_differ_do_not_share_a_batch() -> None:
    batches = drain(
        filled([waiting(1, length=100), waiting(2, length=20), waiting(3, length=95), waiting(4, length=21)])
    )
    assert [sorted(item.ticket for item in batch) for batch in batches] == [[1, 3], [2, 4]]


def test_suspects_go_first_and_alone() -> None:
    line = filled([waiting(1), waiting(2, alone=True), waiting(3), waiting(4, alone=True)])
    assert [[item.ticket for item in batch] for batch in drain(line)] == [[2], [4], [1, 3]]


def test_dropping_a_job_leaves_its_neighbours() -> None:
    line = filled([waiting(1, "a"), waiting(2, "b"), waiting(3, "a", alone=True)])
    assert {item.ticket for item in line.drop_job("a")} == {1, 3}
    assert [item.ticket for item in line] == [2]


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**6), min_size=1, max_size=80))
def test_shares_sum_to_the_whole_and_are_within_one_of_exact(total: int, weights: list[int]) -> None:
    parts = split_exactly(total, weights)
    assert sum(parts) == total
    whole = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        if whole:
            assert abs(part * whole - total * weight) < whole


def test_shares_by_largest_remainder() -> None:
    assert split_exactly(10, [1, 1, 1]) == [4, 3, 3]
    assert split_exactly(100, [667, 333]) == [67, 33]
    assert split_exactly(7, [0, 0]) == [4, 3]
    assert split_exactly(0, []) == []


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one weight"):
        split_exactly(1, [])
    with pytest.raises(ValueError, match="negative"):
        split_exactly(1, [-1, 2])


def test_what_a_model_says_of_its_cost_bounds_a_batch() -> None:
    """Windows of a fixed size: bytes bound the batch, and unlike lengths are no padding."""
    queue = UtteranceQueue(BatchLimits(utterances=8, samples=8 * 100, bytes=35, padding=0.25))
    for ticket in range(5):
        queue.add(QueuedUtterance(ticket, "job", "model", 10 + 20 * ticket))

    sizes = []
    while batch := queue.next_batch(cost=lambda _: BatchCost(1500, 10)):
        sizes.append([item.ticket for item in batch])

    assert sizes == [[0, 1, 2], [3, 4]]


def test_an_utterance_that_costs_more_than_there_is_comes_alone() -> None:
    queue = UtteranceQueue(BatchLimits(bytes=35))
    for ticket in range(2):
        queue.add(QueuedUtterance(ticket, "job", "model", 10))

    assert len(queue.next_batch(cost=lambda _: BatchCost(1, 40))) == 1


def test_a_slow_device_gets_batches_of_a_few_seconds() -> None:
    pace = BatchPace(seconds=5.0)
    assert pace.most_samples("m") == FIRST_SAMPLES
    pace.record("m", samples=1_000, ns=1_000_000_000)  # 1,000 samples a second
    line = filled([waiting(ticket, length=1_000) for ticket in range(40)], BatchLimits())
    assert len(line.next_batch(most_samples=pace.most_samples)) == 5
    pace.record("m", samples=5_000, ns=10_000_000_000)
    assert len(line.next_batch(most_samples=pace.most_samples)) == 3
    assert len(line.next_batch(most_samples=lambda _: 1)) == 1, "one goes whatever it takes"
    assert pace.most_samples("n") == FIRST_SAMPLES
    pace.record("fast", samples=10**9, ns=1_000_000_000)
    assert len(line.next_batch(most_samples=lambda _: pace.most_samples("fast"))) == 31


def test_live_sessions_go_before_jobs_together() -> None:
    queue = UtteranceQueue(BatchLimits())
    queue.add(QueuedUtterance(1, "job", ("m", False), 16_000))
    queue.add(QueuedUtterance(2, "a", ("m", True), 1280, live=True))
    queue.add(QueuedUtterance(3, "job", ("m", False), 16_000))
    queue.add(QueuedUtterance(4, "b", ("m", True), 1280, live=True))
    assert [item.ticket for item in queue.next_batch()] == [2, 4]
    assert [item.ticket for item in queue.next_batch()] == [1, 3]


def test_a_live_session_does_not_bring_in_a_model_that_may_not_come_yet() -> None:
    queue = UtteranceQueue(BatchLimits())
    queue.add(QueuedUtterance(1, "job", "loaded, jobs", 16_000))
    queue.add(QueuedUtterance(2, "a", "other, live", 1280, live=True))
    queue.add(QueuedUtterance(3, "b", "loaded, live", 1280, live=True))

    def may_serve(group: object) -> bool:
        return str(group).startswith("loaded")

    assert [[item.ticket for item in queue.next_batch(may_serve)] for _ in range(3)] == [[3], [1], [2]]


def test_a_batch_may_be_kept_shorter_than_its_pace_asks() -> None:
    pace = BatchPace(seconds=5.0)
    pace.record("group", 160_000, 1_000_000_000)
    assert pace.most_samples("group") == 800_000
    assert pace.most_samples("group", 0.25) == 40_000
    assert pace.most_samples("group", 60.0) == 800_000
