"""Which models stay in memory, and how often an engine that has to change them does."""

from pathlib import Path

import pytest

from ops.testbed.fake_models import LOADER, tone
from worker.engine import (
    BatchLimits,
    Engine,
    EngineOptions,
    ModelCache,
    ModelCacheOptions,
    QueuedUtterance,
    UtteranceQueue,
    file_size,
)

DEADLINE = 60.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def model_cache(clock: Clock | None = None, **options: object) -> ModelCache[str]:
    return ModelCache(ModelCacheOptions(**options), clock or Clock())  # type: ignore[arg-type]


def load(model_cache: ModelCache[str], path: str, size: int = 1) -> None:
    model_cache.make_room(path)
    model_cache.take_in(path, path.upper(), size)


def test_the_one_not_needed_for_longest_makes_room() -> None:
    held = model_cache(most=10, budget_bytes=3)
    for path in "abc":
        load(held, path)
    assert held.get("a") == "A"
    assert held.make_room("d") == ()  # its size is not known yet
    assert held.take_in("d", "D", 1) == ("b",)
    assert held.held == ("c", "a", "d")
    assert held.make_room("b") == ("c",)  # its size is known by now


def test_pinned_models_stay_and_the_one_asked_for_is_always_taken() -> None:
    held = model_cache(most=10, budget_bytes=2, pinned=frozenset({"a"}))
    load(held, "a", 2)
    load(held, "b", 5)
    assert held.held == ("a", "b")
    load(held, "c", 1)
    assert held.held == ("a", "c")


def test_what_was_just_loaded_stays_for_a_while() -> None:
    clock = Clock()
    held = model_cache(clock, most=1, stay_seconds=20)
    assert held.may_serve("a")
    load(held, "a")
    assert held.may_serve("a")
    clock.now = 19.9
    assert not held.may_serve("b")
    clock.now = 20.0
    assert held.may_serve("b")


def test_where_there_is_room_nobody_waits() -> None:
    held = model_cache(most=2, stay_seconds=20)
    load(held, "a")
    assert held.may_serve("b")


def test_the_size_of_files_is_known_before_they_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    (tmp_path / "config.json").write_bytes(b"x" * 7)
    assert file_size(str(tmp_path)) == 100
    assert file_size(str(tmp_path / "model.safetensors")) == 100
    assert file_size("owner/name") == 0
    held = model_cache(most=10, budget_bytes=120)
    load(held, "a", 30)
    assert held.make_room(str(tmp_path)) == ("a",)


def test_jobs_of_models_that_may_not_go_first_keep_what_they_are_owed() -> None:
    waiting = UtteranceQueue(BatchLimits(utterances=1))
    for ticket in range(6):
        waiting.add(QueuedUtterance(ticket, f"job-{ticket % 2}", ("ab"[ticket % 2], None), 100))
    assert [waiting.next_batch(lambda group: group[0] == "a")[0].job for _ in range(2)] == ["job-0"] * 2  # type: ignore[index]
    # Then the other one catches up, and where nothing may go first whoever is there goes.
    assert [waiting.next_batch()[0].job for _ in range(2)] == ["job-1"] * 2
    assert waiting.next_batch(lambda _: False)
    assert waiting.next_batch(lambda _: False)
    assert waiting.next_batch(lambda _: False) == []


@pytest.mark.integration
@pytest.mark.parametrize(("stay", "most", "loads"), [(60.0, 1, 2), (0.0, 1, 12), (60.0, 2, 2)])
def test_two_models_that_do_not_fit_together_take_turns_of_a_while(
    stay: float, most: int, loads: int
) -> None:
    """Twelve batches of two models in turn, all handed in at once."""
    options = EngineOptions(
        limits=BatchLimits(utterances=1),
        model_cache=ModelCacheOptions(most=most, stay_seconds=stay),
        loader=LOADER,
    )
    engine = Engine(options).start()
    try:
        engine.submit("first", tone(1), "sleep=0.3")  # while it runs, the others queue
        models = ["sleep=0.3", "sleep=0.001"]
        futures = [engine.submit(f"job-{number % 2}", tone(1), models[number % 2]) for number in range(12)]
        for future in futures:
            assert future.result(DEADLINE).words
        assert engine.stats.loads == loads
        assert len(engine.loaded) == most
    finally:
        engine.close()
