"""The speech detector beside a live session."""

from pathlib import Path

import numpy as np
import soundfile

from worker.live.voice import Voice
from worker.speech.detector import SpeechDetector

GOLDEN = Path(__file__).parents[2] / "golden" / "streaming"


def test_since_when_nobody_speaks() -> None:
    voice = Voice(SpeechDetector.load())
    speech = soundfile.read(GOLDEN / "2.flac", dtype="float32")[0]
    silence = np.zeros(32_000, np.float32)
    assert voice.push(silence) == []
    assert 1.7 <= voice.unvoiced <= 2.0
    started = voice.push(speech)
    assert len(started) >= 1
    assert 2.0 <= started[0] < 2.0 + len(speech) / 16_000
    before = voice.unvoiced
    assert voice.push(silence) == []
    assert 1.7 <= voice.unvoiced - before <= 2.3


def test_blocks_change_nothing() -> None:
    speech = soundfile.read(GOLDEN / "2.flac", dtype="float32")[0]
    voices = [Voice(SpeechDetector.load()) for _ in range(2)]
    started: list[list[float]] = [[], []]
    for voice, times, size in zip(voices, started, (len(speech), 777), strict=True):
        for first in range(0, len(speech), size):
            times += voice.push(speech[first : first + size])
    assert started[0] == started[1]
    assert voices[0].unvoiced == voices[1].unvoiced
