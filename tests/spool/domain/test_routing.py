"""Where jobs wait, which workers take them, and what is said where none does."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import TypeAdapter

from spool.domain import (
    AnnouncedModel,
    Machine,
    Offer,
    Requirement,
    Route,
    WorkerReport,
    different_weights,
    route_of,
    why_waiting,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MAC = Machine("metal", "Apple M4 Max", 64 * 2**30)
METAL = Requirement(backend="metal", memory_gb=16)


def seen(name: str = "mini", state: str = "ready", hours: float = 0.0, **offer: object) -> WorkerReport:
    values: dict[str, object] = {"models": frozenset({"parakeet"}), "machine": MAC, **offer}
    taken = Offer("metal", name, **values)  # type: ignore[arg-type]
    return WorkerReport(taken, state, None, hours == 0.0, NOW - timedelta(hours=hours))


@pytest.mark.parametrize(
    ("route", "queue"),
    [
        (Route("cpu"), "spool.cpu"),
        (Route("metal", "mini-3"), "spool.metal;at:mini-3"),
        (Route(None, model="whisper-tiny.en"), "spool.model:whisper-tiny.en"),
        (Route(None, "mini", "a b;c:d/é"), "spool.model:a%20b%3Bc%3Ad%2F%C3%A9;at:mini"),
        (
            Route(None, model="parakeet", requires=Requirement(backend="metal", chip="M4 Max", memory_gb=16)),
            "spool.model:parakeet;backend:metal;chip:M4%20Max;memory:16",
        ),
        (Route(None, model="p", reader="a;b"), "spool.model:p;reader:a%3Bb"),
        (Route("cpu.at.mini"), "spool.cpu.at.mini"),
    ],
)
def test_a_queue_says_its_route(route: Route, queue: str) -> None:
    assert route.queue == queue
    assert route_of(queue) == route


def test_a_worker_takes_what_it_has_and_is() -> None:
    offer = Offer("metal", "mini", frozenset({"parakeet"}), MAC)
    assert offer.takes(Route(None, model="parakeet"))
    assert offer.takes(Route(None, model="parakeet", requires=METAL))
    assert offer.takes(Route("metal"), "parakeet")
    assert offer.takes(Route(None, "mini", "parakeet"))
    assert not offer.takes(Route(None, model="whisper"))
    assert not offer.takes(Route(None, model="parakeet", reader="whisper"))
    assert not offer.takes(Route("metal", reader="whisper"), "parakeet")
    both = Offer("metal", "mini", frozenset({"parakeet", "whisper"}), MAC)
    assert both.takes(Route(None, model="parakeet", reader="whisper"))
    assert not offer.takes(Route("metal"), "whisper")
    assert not offer.takes(Route("cpu"), "parakeet")
    assert not offer.takes(Route(None, "other", "parakeet"))
    for requires in (
        Requirement(backend="cuda"),
        Requirement(chip="M2"),
        Requirement(memory_gb=65),
    ):
        assert not offer.takes(Route(None, model="parakeet", requires=requires))
    assert offer.takes(Route(None, model="parakeet", requires=Requirement(chip="m4 max", memory_gb=64)))
    assert not Offer("x", "y").takes(Route(None, model="parakeet", requires=METAL)), "it does not say"
    assert {route_of(queue).model for queue in offer.queues} == {None, "parakeet"}


def test_a_requirement_of_a_job_goes_over_that_of_its_model() -> None:
    assert Requirement(memory_gb=32).over(METAL) == Requirement(backend="metal", memory_gb=32)


@pytest.mark.parametrize(
    ("route", "workers", "reason"),
    [
        (Route(None, model="parakeet"), [seen()], None),
        (Route(None, model="parakeet"), [seen(state="starting")], None),
        (
            Route(None, model="parakeet"),
            [seen(hours=3), seen("other", hours=50)],
            "a worker with model parakeet; none was seen for 3 h",
        ),
        (
            Route(None, model="parakeet"),
            [seen(state="unwell")],
            "a worker with model parakeet; mini is unwell",
        ),
        (Route(None, model="parakeet"), [], "a worker with model parakeet; no worker is running"),
        (
            Route(None, model="whisper"),
            [seen()],
            "a worker with model whisper; those that are running have parakeet",
        ),
        (
            Route("metal", "mini", requires=Requirement(memory_gb=128)),
            [seen()],
            "the worker mini in pool metal with model parakeet on at least 128 GiB of memory; "
            "none is running",
        ),
    ],
)
def test_a_job_says_what_it_waits_for(route: Route, workers: list[WorkerReport], reason: str | None) -> None:
    assert why_waiting(route, route.model or "parakeet", workers, NOW) == reason


def test_different_weights_under_one_name_are_said_with_their_workers() -> None:
    one, other = AnnouncedModel("nemo", "a" * 64), AnnouncedModel("nemo", "b" * 64)
    assert (
        different_weights("x", [("m1", {"x": one}), ("m2", {"x": one}), ("m3", {"x": AnnouncedModel()})])
        is None
    )
    sentence = different_weights("x", [("m1", {"x": one}), ("m2", {"x": other}), ("m3", {"x": one})])
    assert sentence is not None
    assert "m1, m3: aaaaaaaaaaaa…; m2: bbbbbbbbbbbb…" in sentence


def test_facts_survive_as_json_with_fields_of_a_later_version() -> None:
    facts = AnnouncedModel("whisper", "a" * 64, ("de", "en"), ("transcribe",), "float16")
    known = TypeAdapter(AnnouncedModel)
    assert known.validate_python(known.dump_python(facts, mode="json") | {"later": 1}) == facts
