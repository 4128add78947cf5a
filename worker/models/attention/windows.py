"""What families share in judging a window and its answers: which of them loop, which sound is no speech, and
where a window is halved.

No clock and no chance; nothing of another window. Knows no family.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from worker.models.base_attention import SAMPLE_RATE, PromptAnswer, Window, WindowOutcome

ROUNDS_MAX = 4  # beyond the first
COMPRESSION_MAX = 2.4  # above it a text is a loop (Radford et al. 2022, 4.5)
HALVED_SECONDS_MIN = 4.0
LEVEL_SECONDS = 0.3
MIDDLE = (0.3, 0.7)
RUN_MAX = 3  # an n-gram that is spoken more often in a row is a loop
GRAM_MAX = 12
# A sound whose 50 ms levels stay this close together for this long is a hum or a noise: speech rises and
# falls by far more, four times a second. In 25 s of it the model is unsure that nobody speaks (0.55 to 0.66).
STEADY_SECONDS_MIN = 4.0
STEADY_DECIBELS = 6.0
STEADY_FRAME = SAMPLE_RATE // 20


def repeats_itself(reading: PromptAnswer) -> bool:
    """Whether an answer never ended, or its text is a loop."""
    return not reading.ended or reading.compression > COMPRESSION_MAX


def is_steady(samples: NDArray[np.float32]) -> bool:
    """Whether a window is one hum or noise from end to end: 98 % of its 50 ms levels lie within 6 dB. Nothing
    shorter than four seconds is."""
    count = len(samples) // STEADY_FRAME
    if len(samples) < STEADY_SECONDS_MIN * SAMPLE_RATE:
        return False
    # The variance: an offset and what is too slow to hear do not count.
    power = samples[: count * STEADY_FRAME].astype(np.float64).reshape(count, STEADY_FRAME).var(axis=1)
    low, high = np.percentile(10 * np.log10(np.maximum(power, 1e-20)), (1, 99))
    return bool(high - low <= STEADY_DECIBELS)


def cut_runs(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """The tokens with every run of one n-gram (n up to 12) that stands more than three times in a row cut to
    once."""
    kept: list[int] = []
    at = 0
    while at < len(tokens):
        size, times = _longest_run(tokens, at)
        kept += tokens[at : at + size]
        at += size * times
    return tuple(kept)


def _longest_run(tokens: tuple[int, ...], at: int) -> tuple[int, int]:
    """The n-gram at `at` whose run covers most, by its size, and how often it is to be passed over."""
    best = (1, 1)
    for size in range(1, GRAM_MAX + 1):
        gram, times = tokens[at : at + size], 1
        while tokens[at + size * times : at + size * (times + 1)] == gram:
            times += 1
        if times > RUN_MAX and size * times > best[0] * best[1]:
            best = (size, times)
    return best


def halves(window: Window, samples: NDArray[np.float32]) -> tuple[Window, ...]:
    """The two parts of a window of these samples, cut where it is quietest, for the next round; none where it
    is too short, or no round is left."""
    if window.round >= ROUNDS_MAX or window.seconds <= HALVED_SECONDS_MIN:
        return ()
    cut = window.start + quietest(samples)
    after = window.round + 1
    return replace(window, stop=cut, round=after), replace(window, start=cut, round=after)


def quietest(samples: NDArray[np.float32]) -> int:
    """The sample in the middle of a window around which 0.3 s are quietest, the first of equals."""
    width = int(LEVEL_SECONDS * SAMPLE_RATE)
    power = np.concatenate([np.zeros(1), np.cumsum(np.square(samples, dtype=np.float64))])
    first, last = (int(len(samples) * share) for share in MIDDLE)
    centres = np.arange(first, max(last, first + 1))
    left = np.maximum(centres - width // 2, 0)
    right = np.minimum(centres + width // 2, len(samples))
    return int(centres[np.argmin(power[right] - power[left])])


def judge_answer(window: Window, reading: PromptAnswer, samples: NDArray[np.float32]) -> WindowOutcome:
    """What becomes of a window of these samples, at 16 kHz, that was asked once: a loop is halved and asked
    again, and cut where the window cannot be halved any more."""
    if reading.words == 0:
        return WindowOutcome("silent")
    if not repeats_itself(reading):
        return WindowOutcome("kept", reading.tokens)
    if again := halves(window, samples):
        return WindowOutcome("divided", again=again)
    return WindowOutcome("kept", cut_runs(reading.tokens))
