"""Which frames the speaker cache keeps: NeMo's choices, and what holds for any recording."""

import json

import numpy as np
import pytest

from tests.worker.models.sortformer.golden import NORMALISED, STREAMING, answers, parsed
from worker.models import SpeakerCache, StreamingOptions, keep_frames

TRACES = [
    key for key in sorted(answers()) if "/trace." in key and key.count(".") == 2
]  # NAME/trace.SETTING.RECORDING


@pytest.mark.parametrize("key", TRACES)
def test_every_compression_keeps_what_nemos_keeps(key: str) -> None:
    name, _, rest = key.partition("/")
    options = StreamingOptions(**parsed(name, "settings")[rest.split(".")[1]])
    steps = json.loads(str(answers()[key]))
    assert steps
    for number, step in enumerate(steps):
        indices, silent = keep_frames(answers()[f"{key}.preds{number}"], options)
        assert indices.tolist() == step["keep"]
        assert silent.astype(int).tolist() == step["disabled"]


def test_there_are_traces_of_both_models_and_settings() -> None:
    assert {key.partition("/")[0] for key in TRACES} == {STREAMING, NORMALISED}
    assert {key.split(".")[1] for key in TRACES} == {"default", "small"}


def activity(frames: int, seed: int) -> np.ndarray:
    """Four speakers who take turns of some seconds, sometimes two at once, with pauses."""
    random = np.random.default_rng(seed)
    probabilities = random.uniform(0, 0.2, (frames, 4)).astype(np.float32)
    at = 0
    while at < frames:
        turn = int(random.integers(5, 80))
        speaker = int(random.integers(-1, 5))
        if speaker >= 0:
            probabilities[at : at + turn, speaker % 4] = random.uniform(0.4, 1, min(turn, frames - at))
        if random.random() < 0.3:
            probabilities[at : at + turn, (speaker + 1) % 4] = random.uniform(0.4, 1)
        at += turn
    return probabilities


@pytest.mark.parametrize("options", [StreamingOptions(), StreamingOptions(chunk_len=340, fifo_len=40)])
def test_over_an_hour_the_cache_holds_every_speaker_by_time(options: StreamingOptions) -> None:
    frames = 45_000
    probabilities = activity(frames, 5)
    # A frame's first number tells which it was; the second is 0 or 1, and neither for a mean of frames.
    numbers = np.arange(frames)
    rows = np.stack([numbers, numbers % 2], 1).astype(np.float32)
    cache, answered = SpeakerCache(2, options), 0
    for first in range(0, frames, options.chunk_len):
        heard = cache.frames
        assert len(heard) <= options.spkcache_len + options.fifo_len
        chunk = rows[first : first + options.chunk_len]
        own = heard[:, 0].astype(int)
        given = np.concatenate([probabilities[own], probabilities[first : first + len(chunk)]])
        answer = cache.take(chunk, given, 0, 0)
        np.testing.assert_array_equal(answer, probabilities[first : first + len(chunk)])
        answered += len(answer)
    assert answered == frames
    kept = cache.frames[: options.spkcache_len]
    times = kept[np.isin(kept[:, 1], (0, 1)), 0].astype(int)
    assert len(times) > options.spkcache_len / 2
    assert (np.bincount(probabilities[times].argmax(1), minlength=4) >= 20).all()
    # By speaker, and within each by time: it goes back in time three times at most.
    assert (np.diff(times) < 0).sum() <= 3


def test_equal_scores_go_to_the_first() -> None:
    probabilities = np.tile(np.array([0.9, 0.1, 0.1, 0.1], np.float32), (60, 1))
    options = StreamingOptions(spkcache_len=44, scores_boost_latest=0)
    indices, silent = keep_frames(probabilities, options)
    assert indices[~silent].tolist() == list(range(32))
    assert silent.sum() == 12
