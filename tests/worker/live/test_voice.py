"""The speech detector beside a live session."""

import numpy as np

from tests.golden.streaming.golden import audio
from worker.live import Voice
from worker.speech import SpeechDetector

SILENCE = np.zeros(32_000, np.float32)


def test_since_when_nobody_speaks() -> None:
    voice, samples = Voice(SpeechDetector.load()), audio(2)
    end = 2.0 + len(samples) / 16_000
    voice.push(np.concatenate([SILENCE, samples, SILENCE]))
    assert 1.7 <= voice.measure_unvoiced(2.0) <= 2.0
    assert voice.take_starts(2.0) == []
    started = voice.take_starts(end)
    assert len(started) >= 1
    assert 2.0 <= started[0] < end
    assert voice.take_starts(end + 2.0) == []
    assert 1.7 <= voice.measure_unvoiced(end + 2.0) - voice.measure_unvoiced(end) <= 2.3


def test_neither_blocks_nor_what_comes_later_change_what_is_said_of_a_moment() -> None:
    samples = np.concatenate([audio(2), SILENCE, audio(2)])
    known, heard = Voice(SpeechDetector.load()), Voice(SpeechDetector.load())
    known.push(samples)
    for first in range(0, len(samples), 777):
        heard.push(samples[first : first + 777])
        at = min(first + 777, len(samples)) / 16_000
        assert heard.measure_unvoiced(at) == known.measure_unvoiced(at)
        assert heard.take_starts(at) == known.take_starts(at)
