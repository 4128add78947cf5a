"""The steps of live sessions in the engine's process: what is lost, what fails alone, what is refused."""

from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
import pytest

from spool.domain import Recognition
from spool.errors import EngineError, InvalidRequest, SpoolError, StateLost
from tests.golden.streaming.golden import audio, model
from worker.engine import Failure, LiveSteps
from worker.live import End, Event, LiveAnswer, LiveFeed
from worker.models import DecodeRequest, NemoModel, SearchOptions

SEARCH = SearchOptions(head="rnnt", att_context=(70, 1))
BLOCK = 16_000


class Fragile:
    """The model, but a step fails that hears one of the streams in `poison`."""

    def __init__(self) -> None:
        self.poison: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(model(), name)

    def step(self, streams: Sequence[Any]) -> list[mx.array]:
        if any(stream in self.poison for stream in streams):
            raise RuntimeError("a poisonous stream")
        return model().step(streams)


def feed(steps: LiveSteps, *feeds: LiveFeed) -> list[Recognition | Failure]:
    pieces = [audio(1)[each.offset : each.offset + BLOCK] for each in feeds]
    return steps.recognize(pieces, [DecodeRequest(step=each, search=SEARCH) for each in feeds])


def events_of(answer: Recognition | Failure) -> tuple[Event, ...]:
    assert isinstance(answer, Recognition)
    assert isinstance(answer.output, LiveAnswer)
    return answer.output.events


def error_of(answer: Recognition | Failure) -> SpoolError:
    assert isinstance(answer, Failure)
    return answer.error


def test_a_feed_that_does_not_go_on_where_its_session_is_finds_its_state_lost() -> None:
    steps = LiveSteps(model())
    assert isinstance(error_of(feed(steps, LiveFeed("a", BLOCK))[0]), StateLost)
    first = events_of(feed(steps, LiveFeed("a", 0))[0])
    assert isinstance(error_of(feed(steps, LiveFeed("a", 2 * BLOCK))[0]), StateLost)
    # From the start it is opened anew, and says the same.
    assert events_of(feed(steps, LiveFeed("a", 0, replay=True))[0]) == first


def test_a_session_that_was_given_up_or_has_ended_is_known_no_more() -> None:
    steps = LiveSteps(model())
    feed(steps, LiveFeed("a", 0), LiveFeed("b", 0))
    assert isinstance(error_of(feed(steps, LiveFeed("a", BLOCK, gone=True))[0]), StateLost)
    assert isinstance(error_of(feed(steps, LiveFeed("a", BLOCK))[0]), StateLost)
    assert isinstance(events_of(feed(steps, LiveFeed("b", BLOCK, last=True))[0])[-1], End)
    assert isinstance(error_of(feed(steps, LiveFeed("b", 2 * BLOCK))[0]), StateLost)


def test_a_step_that_fails_costs_the_neighbours_their_state_and_only_the_guilty_one_its_life() -> None:
    fragile = Fragile()
    steps = LiveSteps(cast("NemoModel", fragile))  # it has whatever the model has
    feed(steps, LiveFeed("good", 0), LiveFeed("bad", 0))
    fragile.poison = [steps._open["bad"].session.stream]
    answers = feed(steps, LiveFeed("good", BLOCK), LiveFeed("bad", BLOCK))
    assert [type(error_of(answer)) for answer in answers] == [StateLost, StateLost]

    fragile.poison = []
    feed(steps, LiveFeed("good", 0, replay=True), LiveFeed("bad", 0, replay=True))
    fragile.poison = [steps._open["bad"].session.stream]
    good, bad = feed(steps, LiveFeed("good", BLOCK, replay=True), LiveFeed("bad", BLOCK, replay=True))
    assert type(error_of(bad)) is EngineError
    assert "RuntimeError: a poisonous stream" in error_of(bad).message

    alone = LiveSteps(model())
    feed(alone, LiveFeed("good", 0))
    assert events_of(good) == events_of(feed(alone, LiveFeed("good", BLOCK))[0])


def test_a_context_that_the_model_lacks_is_refused() -> None:
    steps = LiveSteps(model())
    options = SearchOptions(head="rnnt", att_context=(70, 5))
    with pytest.raises(InvalidRequest):
        steps.check(options, LiveFeed("a", 0))
    [answer] = steps.recognize([audio(1)[:BLOCK]], [DecodeRequest(step=LiveFeed("a", 0), search=options)])
    assert isinstance(error_of(answer), InvalidRequest)
