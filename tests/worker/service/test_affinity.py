"""How long a worker takes jobs of its own models before others, and how many loads that saves."""

from collections import deque

import pytest

from spool.store import Passed
from worker.service import ModelAffinity, list_loaded


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_whoever_is_passed_over_waits_for_a_stay_and_no_longer() -> None:
    clock = Clock()
    affinity = ModelAffinity(20, clock)
    assert affinity.first(["a"]) == {"a"}
    affinity.record_claim(Passed(1, 3), loaded=True)
    clock.now = 19
    affinity.record_claim(None, loaded=True)  # of another project, say: the one passed over still waits
    assert affinity.first(["a"]) == {"a"}
    clock.now = 20
    assert affinity.first(["a"]) == frozenset()
    affinity.record_claim(None, loaded=True)
    assert affinity.first(["a"]) == frozenset()
    affinity.record_claim(None, loaded=False)
    assert affinity.first(["b"]) == {"b"}


def test_more_work_for_what_is_here_makes_the_stay_longer_up_to_a_limit() -> None:
    clock = Clock()
    affinity = ModelAffinity(10, clock)
    affinity.record_claim(Passed(60, 4), loaded=True)
    clock.now = 49
    assert affinity.first(["a"]) == {"a"}
    clock.now = 50
    assert affinity.first(["a"]) == frozenset()


def test_nobody_waits_for_ever_for_one_who_is_gone() -> None:
    clock = Clock()
    affinity = ModelAffinity(10, clock)
    affinity.record_claim(Passed(1, 1), loaded=True)
    clock.now = 10
    for _ in range(16):
        assert affinity.first(["a"]) == frozenset()
        affinity.record_claim(None, loaded=True)
    assert affinity.first(["a"]) == {"a"}


def test_without_a_stay_jobs_come_in_their_order() -> None:
    assert ModelAffinity(0).first(["a"]) == frozenset()


def test_paths_in_memory_have_the_names_of_the_settings() -> None:
    assert list_loaded({"x": "/m/1", "y": "/m/2", "z": "/m/1"}, ["/m/2", "/m/1", "/gone"]) == ("y", "x", "z")


@pytest.mark.parametrize(("stay", "most"), [(0.0, 400), (20.0, 30)])
def test_loads_of_a_worker_with_room_for_one_of_three_models(stay: float, most: int) -> None:
    """Four hundred jobs of a second each, their models in turn; a load takes two seconds."""
    clock = Clock()
    affinity = ModelAffinity(stay, clock)
    waiting = deque((number, "abc"[number % 3]) for number in range(400))
    here, loads, longest = "", 0, 0.0
    while waiting:
        first = affinity.first([here] if here else [])
        ahead = list(waiting)[:64]
        suits = [job for job in ahead if job[1] in first]
        job = suits[0] if suits else waiting[0]
        passed = None
        if job is not waiting[0]:
            passed = Passed(len(suits), sum(model == waiting[0][1] for _, model in ahead))
        waiting.remove(job)
        affinity.record_claim(passed, loaded=job[1] == here)
        if job[1] != here:
            here, loads, clock.now = job[1], loads + 1, clock.now + 2
        clock.now += 1
        longest = max(longest, clock.now)
    assert loads <= most
    assert loads == 400 or stay
