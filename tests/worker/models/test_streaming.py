"""A cache-aware encoder chunk by chunk: what its steps give is what the whole recording gives."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from tests.golden.streaming.golden import Samples, answers, audio, model
from worker.models import EncoderSteps, EncoderStream, MelStream, load_model, require_streaming

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[2] / "golden"
UTTERANCES = (1, 2)
CONTEXTS = [tuple(pair) for pair in json.loads(str(answers()["contexts"]))]


def cut(samples: Samples, sizes: Sequence[int]) -> Iterator[Samples]:
    """Blocks of these sizes, over and over."""
    at = index = 0
    while at < len(samples):
        size = sizes[index % len(sizes)]
        yield samples[at : at + size]
        at, index = at + size, index + 1


def steps(stream: EncoderStream, blocks: Iterator[Samples]) -> Iterator[NDArray[np.float32]]:
    """The frames of each step of a stream that is alone."""
    for block in blocks:
        stream.push(block)
        while stream.is_ready:
            yield np.array(model().step([stream])[0])
    stream.finish()
    while stream.is_ready:
        yield np.array(model().step([stream])[0])
    assert stream.has_ended


@pytest.mark.parametrize("context", CONTEXTS)
def test_steps_give_the_frames_of_the_whole(context: tuple[int, int]) -> None:
    for number, sizes in zip(UTTERANCES, ((1280,), (1, 7000, 333, 40_000)), strict=True):
        given = list(steps(model().open_stream(context), cut(audio(number), sizes)))
        key = f"{context[1]}.{number}"
        assert [len(each) for each in given] == answers()[f"step_frames.{key}"].tolist()
        expected = answers()[f"enc.{key}"]
        frames = np.concatenate(given)
        np.testing.assert_allclose(frames, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
        whole = np.array(model().encode([audio(number)], context).frames[0])
        np.testing.assert_allclose(frames, whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [160, 777, 16_000])
def test_features_do_not_depend_on_the_blocks(size: int) -> None:
    mel = MelStream(model().front_end)
    parts = []
    for block in cut(audio(2), (size,)):
        mel.push(block)
        parts.append(np.array(mel.take()))
        assert mel.frames == sum(map(len, parts))
    mel.finish()
    parts.append(np.array(mel.take()))
    np.testing.assert_allclose(np.concatenate(parts), np.array(model().front_end(audio(2))), atol=1e-5)


def test_a_feature_is_given_as_soon_as_it_is_final() -> None:
    mel = MelStream(model().front_end)
    given = []
    for samples in (199, 1, 159, 1):  # the window of frame i ends at sample 160 i + 200
        mel.push(np.zeros(samples, np.float32))
        given.append(len(mel.take()))
    assert given == [0, 1, 0, 1]


def test_streams_of_unlike_ages_step_together() -> None:
    context, apart = (70, 1), 5
    alone = np.concatenate(list(steps(model().open_stream(context), cut(audio(1), (4000,)))))
    old, young = (model().open_stream(context) for _ in range(2))
    old.push(audio(1))
    frames: dict[int, list[NDArray[Any]]] = {0: [], 1: []}
    for _ in range(apart):
        frames[0].append(np.array(model()._steps.step_together([old])[0]))
    young.push(audio(1))
    old.finish()
    young.finish()
    while old.is_ready or young.is_ready:
        ready = [(row, stream) for row, stream in enumerate((old, young)) if stream.is_ready]
        given = model()._steps.step_together([stream for _, stream in ready])
        for (row, _), each in zip(ready, given, strict=True):
            frames[row].append(np.array(each))
    for row in frames:
        np.testing.assert_allclose(np.concatenate(frames[row]), alone, rtol=0, atol=1e-5)


def test_neighbours_change_no_bit_on_a_cpu() -> None:
    tolerance = 0.0 if mx.default_device().type == mx.DeviceType.cpu else 1e-5
    streams = [model().open_stream((70, 6)) for _ in range(2)]
    alone = model().open_stream((70, 6))
    noise = np.random.default_rng(1).normal(0, 0.1, 20_000).astype(np.float32)
    for stream, samples in zip((*streams, alone), (audio(2), noise, audio(2)), strict=True):
        stream.push(samples)
    beside, _ = model().step(streams)
    by_itself = np.array(model().step([alone])[0])
    np.testing.assert_allclose(np.array(beside), by_itself, rtol=0, atol=tolerance)


def test_streams_of_one_shape_are_one_batch_on_a_cpu_and_each_has_its_own_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if mx.default_device().type != mx.DeviceType.cpu:
        pytest.skip("a GPU takes all as one batch")
    noise = np.random.default_rng(1).normal(0, 0.1, 60_000).astype(np.float32)
    heard = [audio(1), noise, audio(2), noise[::-1].copy(), audio(1)[:30_000]]
    together, alone = ([model().open_stream((70, 1)) for _ in heard] for _ in range(2))
    for streams in (together, alone):
        for number, (stream, samples) in enumerate(zip(streams, heard, strict=True)):
            stream.push(samples[: 40_000 - 1000 * number])
            if number == 4:
                stream.finish()  # its last chunk is shorter
    for stream in (together[0], alone[0]):
        model().step([stream])  # older than the others by a chunk
    batches: list[int] = []
    step_together = EncoderSteps.step_together

    def counted(steps: EncoderSteps, streams: Sequence[EncoderStream]) -> list[mx.array]:
        batches.append(len(streams))
        return step_together(steps, streams)

    monkeypatch.setattr(EncoderSteps, "step_together", counted)
    while ready := [number for number, stream in enumerate(together) if stream.is_ready]:
        given = model().step([together[number] for number in ready])
        for number, frames in zip(ready, given, strict=True):
            by_itself = step_together(model()._steps, [alone[number]])[0]
            assert np.array(frames).tobytes() == np.array(by_itself).tobytes()
    assert max(batches) >= 4
    assert batches[:2] == [1, 4]


def test_a_stream_of_nothing_ends() -> None:
    stream = model().open_stream()
    stream.push(np.zeros(100, np.float32))
    stream.finish()
    assert stream.has_ended
    assert not stream.is_ready
    with pytest.raises(ValueError, match="ended"):
        stream.push(np.zeros(1, np.float32))


def test_what_cannot_stream_is_refused() -> None:
    assert model().capabilities.streams
    with pytest.raises(InvalidRequest, match="att_context"):
        model().open_stream((70, 5))
    whole = load_model(str(GOLDEN / "tdt"))
    assert not whole.capabilities.streams
    with pytest.raises(InvalidRequest, match="cache-aware"):
        require_streaming(whole)
