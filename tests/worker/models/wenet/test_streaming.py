"""U2++ chunk by chunk: what its steps give is what the whole recording gives under the same mask."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.engine import check_decoding, decode_utterances
from worker.live import EndpointRules, Event, Final, LiveGroup, LiveOptions
from worker.models import (
    DecodeRequest,
    EncoderStream,
    FilterBankStream,
    SearchOptions,
    WenetModel,
    filter_bank,
    load_wenet,
    pad_features,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "wenet"
CONTEXTS = {"chunk4.left2": (8, 3), "chunk7.left1": (7, 6)}


@cache
def model() -> WenetModel:
    return load_wenet(GOLDEN / "rnnt", "rnnt")


@cache
def dump() -> dict[str, NDArray[Any]]:
    return dict(np.load(GOLDEN / "rnnt.npz"))


def audio(number: int) -> NDArray[np.float32]:
    return dump()[f"u{number}.wav"].astype(np.float32) / np.float32(32_768)


def frames_of(stream: EncoderStream, samples: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    given = []
    for first in range(0, len(samples), size):
        stream.push(samples[first : first + size])
        while stream.is_ready:
            given.append(np.array(model().step([stream])[0]))
    stream.finish()
    while stream.is_ready:
        given.append(np.array(model().step([stream])[0]))
    assert stream.has_ended
    return np.concatenate(given)


@pytest.mark.parametrize("name", sorted(CONTEXTS))
def test_chunk_masks_are_wenets(name: str) -> None:
    # From WeNet's own features: it computes them in 32 bit.
    features = [dump()[f"u{number}.feats"] for number in (0, 1)]
    encoded = model().encode_features(*pad_features(features), CONTEXTS[name])
    for number in (0, 1):
        expected = dump()[f"u{number}.encoder.{name}"]
        given = np.array(encoded.frames[number, : encoded.lengths[number]])
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("context", [(8, 3), (0, 0), (128, 15)])
def test_steps_give_the_frames_of_the_whole(context: tuple[int, int]) -> None:
    for number, size in ((0, 1600), (1, 333)):
        whole = np.array(model().encode([audio(number)], context).frames[0])
        frames = frames_of(model().open_stream(context), audio(number), size)
        assert frames.shape == whole.shape
        np.testing.assert_allclose(frames, whole, rtol=0, atol=1e-5)


def test_features_do_not_depend_on_the_blocks() -> None:
    stream, samples = FilterBankStream(), audio(0)
    parts = []
    for first in range(0, len(samples), 777):
        stream.push(samples[first : first + 777])
        parts.append(stream.take())
    assert np.array_equal(np.concatenate(parts), filter_bank(samples))


def test_streams_of_unlike_ages_step_together() -> None:
    context = (8, 3)
    alone = [frames_of(model().open_stream(context), audio(number), 16_000) for number in (1, 0)]
    streams = [model().open_stream(context) for _ in alone]
    given: list[list[NDArray[Any]]] = [[], []]
    streams[0].push(audio(1))
    streams[0].finish()
    for _ in range(3):
        given[0].append(np.array(model()._steps.step_together(streams[:1])[0]))
    streams[1].push(audio(0))
    streams[1].finish()
    while any(stream.is_ready for stream in streams):
        ready = [row for row, stream in enumerate(streams) if stream.is_ready]
        stepped = model()._steps.step_together([streams[row] for row in ready])
        for row, frames in zip(ready, stepped, strict=True):
            given[row].append(np.array(frames))
    for each, expected in zip(given, alone, strict=True):
        np.testing.assert_allclose(np.concatenate(each), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("head", ["ctc", "rnnt"])
def test_finals_together_are_the_whole(head: str) -> None:
    # Random weights say as many labels a frame as they may.
    symbols = 2 if head == "rnnt" else None
    options = SearchOptions(head=head, max_symbols=symbols, att_context=(8, 3))
    [answer] = decode_utterances(model(), [audio(1)], options, [DecodeRequest()])
    group = LiveGroup(model(), LiveOptions(options, EndpointRules(silence=0.2, longest=0.8)))
    session, events = group.open(), list[Event]()
    for first in range(0, len(audio(1)), 1600):
        session.push(audio(1)[first : first + 1600])
        events += [event for result in group.step() for event in result.events]
    session.finish()
    while group.is_ready:
        events += [event for result in group.step() for event in result.events]
    finals = [event for event in events if isinstance(event, Final)]
    assert len(finals) > 1
    [best] = answer.hypotheses
    assert tuple(token for final in finals for token in final.tokens) == best.tokens
    assert tuple(time for final in finals for time in final.times) == best.times


def test_what_was_not_trained_in_chunks_is_refused() -> None:
    offline = load_wenet(GOLDEN / "offline", "offline")
    assert not offline.capabilities.streams
    with pytest.raises(InvalidRequest, match="cache-aware"):
        LiveGroup(offline, LiveOptions())
    with pytest.raises(InvalidRequest, match="no choice"):
        check_decoding(offline, SearchOptions(att_context=(8, 3)), DecodeRequest())
    check_decoding(model(), SearchOptions(att_context=(-1, 15)), DecodeRequest())
    with pytest.raises(InvalidRequest, match="negative"):
        check_decoding(model(), SearchOptions(att_context=(8, -1)), DecodeRequest())
    with pytest.raises(InvalidRequest, match="end on both sides"):
        model().open_stream((-1, 15))
