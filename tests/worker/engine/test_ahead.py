"""The host's share of waiting utterances: done beside a batch, never for what left, and never other bits."""

import threading
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from ops.testbed.waiting import until
from worker.engine import Utterance, WorkAhead, decode_utterances
from worker.models import DecodeRequest, NemoModel, SearchOptions, load_model

DEMO = Path(__file__).parents[3] / "models" / "demo"


def waiting(ticket: int, model: str = "m") -> Utterance:
    return Utterance(ticket, f"job-{ticket}", ticket, 160 * ticket, model)


class Scene:
    """A front that doubles, and can be held up."""

    def __init__(self, most_bytes: int = 1 << 20) -> None:
        self.go = threading.Event()
        self.go.set()
        self.made: list[int] = []
        self.ahead = WorkAhead(lambda utterance: np.ones(utterance.samples, np.float32), most_bytes)
        self.ahead.serve("m", self.front)
        self.ahead.start()

    def front(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        self.made.append(len(samples) // 160)
        assert self.go.wait(10)
        if len(samples) == 160 * 7:
            raise ValueError("bad samples")
        return samples * 2


def test_what_waits_is_worked_on_beside_a_batch_and_only_then() -> None:
    scene = Scene()
    for ticket in (1, 2, 3):
        scene.ahead.offer(waiting(ticket))
    assert scene.ahead.begin_batch([1]) == [None], "the device was free: it does its own"
    until(lambda: scene.made == [2, 3], "the others are worked on")
    scene.ahead.end_batch()
    scene.ahead.offer(waiting(4))
    ready = scene.ahead.begin_batch([2, 3])
    assert [None if made is None else made.sum() for made in ready] == [640, 960]
    until(lambda: scene.made == [2, 3, 4], "the next one")


def test_a_batch_waits_for_what_is_being_made_and_not_for_what_was_dropped() -> None:
    scene = Scene()
    scene.ahead.begin_batch([])
    scene.go.clear()
    scene.ahead.offer(waiting(1))
    until(lambda: scene.made == [1], "it has begun")
    taken: list[object] = []
    device = threading.Thread(target=lambda: taken.extend(scene.ahead.begin_batch([1])))
    device.start()
    scene.go.set()
    device.join(10)
    assert len(taken) == 1
    assert taken[0] is not None

    scene.go.clear()
    scene.ahead.offer(waiting(2))
    until(lambda: scene.made == [1, 2], "the next has begun")
    scene.ahead.forget([2])
    scene.go.set()
    assert scene.ahead.begin_batch([2]) == [None]


def test_suspects_other_models_and_what_fails_are_left_to_the_model() -> None:
    scene = Scene()
    scene.ahead.begin_batch([])
    scene.ahead.offer(replace(waiting(1), alone=True))
    scene.ahead.offer(replace(waiting(2), control=True))
    scene.ahead.offer(replace(waiting(3), request=DecodeRequest(step="a step")))
    scene.ahead.offer(waiting(4, "another"))
    scene.ahead.offer(waiting(7))
    scene.ahead.offer(waiting(8))
    until(lambda: scene.made == [7, 8], "those that may be")
    ready = scene.ahead.begin_batch([1, 2, 3, 4, 7, 8])
    assert [made is None for made in ready] == [True] * 5 + [False]


def test_what_is_kept_is_bounded_and_goes_with_its_model() -> None:
    scene = Scene(most_bytes=160 * 4)
    scene.ahead.begin_batch([])
    for ticket in (1, 2):
        scene.ahead.offer(waiting(ticket))
    until(lambda: scene.made == [1], "one fills what there is")
    scene.ahead.serve("m", scene.front)
    until(lambda: scene.made == [1, 2], "dropped with the old front, so there is room")
    assert scene.ahead.begin_batch([1]) == [None]


@pytest.mark.parametrize("seconds", [[0.005, 1.0, 3.3], [61.0]])
def test_answers_are_the_same_bits_with_and_without(seconds: list[float]) -> None:
    model = load_model(str(DEMO))
    assert isinstance(model, NemoModel)
    if model.front is None:
        assert mx.default_device() != mx.Device(mx.cpu)
        return
    random = np.random.default_rng(5)
    audio = [(0.1 * random.standard_normal(int(16_000 * each))).astype(np.float32) for each in seconds]
    ahead = [model.front(each) for each in audio]
    without, _ = model.features(audio)
    features, _ = model.frames.features(audio, ahead)
    assert np.array_equal(np.array(without), np.array(features))
    if len(audio) > 1:
        asks, options = [DecodeRequest()] * len(audio), SearchOptions()
        mixed = [None, *ahead[1:]]
        plain = decode_utterances(model, audio, options, asks)
        assert decode_utterances(model, audio, options, asks, mixed) == plain
