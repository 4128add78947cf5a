"""What is to be done with the answers to a window: keep them, ask again, or give up.

A chunk is one window at first. With times the model reads over pauses, but may open a last segment and not
read it, so what follows the last closed time is asked again; without times it stops at the first long pause.
It is asked without times at first, where the model doubts the language in both of the likeliest two. It is
asked with times too, on the same encoding, where that answer loops, is doubtful, passes over sounds, or has
words that would last too long. Of the answers that are no loop one is kept (`choose`). Where all loop, or
say something twice over, the full window is encoded and asked; where they loop there too, the halves. At most
four rounds; no clock, no chance, and nothing of another chunk. Knows no engine.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from worker.models.attention.windows import ROUNDS_MAX, halves, is_steady, repeats_itself
from worker.models.base_attention import SAMPLE_RATE, PromptAnswer, Window, WindowOutcome
from worker.models.whisper.config import (
    ENCODER_FRAMES,
    MAX_NEW_TOKENS,
    NO_SPEECH_THRESHOLD,
    TIME_STEP,
    SpecialTokens,
    context_frames,
)

TAIL_SECONDS = 1.0  # a shorter rest is not asked again
CLOSED_SECONDS_MIN = 0.2  # a time that closes nothing does not move a window on
# Words by which the mode with times must be ahead: read to the end, the one without has fewer of them wrong.
TIMED_LEAD = 1.5
# A shorter window has hardly a pause to read over: what the mode with times has more is often made up.
SHORT_SECONDS = 8.0
# Below this mean log-probability of a token, an answer without times is held against the one with times
# (LOG.md: of -0.5, -0.7 and never, -0.7 has the fewest errors in turns with pauses, and none elsewhere).
DOUBTFUL_MEAN = -0.7
# So many tokens, said again at once, may be the decoder's own repetition: with less silence behind the sound
# it sometimes reads a sentence twice (LOG.md).
DOUBLED_TOKENS_MIN = 4


def judge(
    window: Window,
    readings: Sequence[PromptAnswer],
    no_speech: float,
    samples: NDArray[np.float32],
    ids: SpecialTokens,
) -> WindowOutcome:
    """What becomes of a window. samples: its own, at 16 kHz.

    `silent`: nothing is spoken, or the sound is steady. `kept`: words, and perhaps a rest to be asked.
    `divided`: all answers loop, and the full window or its halves are asked. `lost`: they loop and cannot be
    divided further.
    """
    if no_speech > NO_SPEECH_THRESHOLD or is_steady(samples):
        return WindowOutcome("silent")
    full = window.full or context_frames(window.stop - window.start) == ENCODER_FRAMES
    sound = [each for each in readings if not is_loop(each) and (full or not says_twice(each.tokens, ids))]
    if not sound:
        if not full:
            return WindowOutcome("divided", again=(replace(window, full=True),))
        again = halves(window, samples)
        return WindowOutcome("divided" if again else "lost", again=again)
    best = choose(window, sound)
    timed, place = best.prompt.timestamps, readings.index(best)
    if timed and window.round < ROUNDS_MAX:
        tokens, end = close_timestamps(best.tokens, ids)
        if end > CLOSED_SECONDS_MIN and window.seconds - end > TAIL_SECONDS:
            rest = Window(window.start + int(end * SAMPLE_RATE), window.stop, window.round + 1)
            return WindowOutcome("kept", tokens, (rest,), place)
    doubtful = not timed and best.mean < DOUBTFUL_MEAN
    return WindowOutcome("kept", best.tokens, reading=place, doubtful=doubtful)


def choose(window: Window, sound: Sequence[PromptAnswer]) -> PromptAnswer:
    """Which of a window's answers, none of them a loop, is kept.

    The languages are compared by their answers without times, or with them where there is no other: the
    surest is kept. In that language it is the answer without times, unless the other is two words longer and,
    in a short window, surer.
    """
    timed_first = sorted(sound, key=lambda reading: not reading.prompt.timestamps)
    plainest = {reading.prompt.language: reading for reading in timed_first}
    language = max(plainest.values(), key=lambda reading: reading.mean).prompt.language
    own = [reading for reading in sound if reading.prompt.language == language]
    longest = max(own, key=lambda reading: reading.words - TIMED_LEAD * reading.prompt.timestamps)
    if longest.prompt.timestamps and window.seconds < SHORT_SECONDS:
        return max(own, key=lambda reading: reading.mean)
    return longest


def is_loop(reading: PromptAnswer) -> bool:
    """Whether an answer repeats itself or never ended."""
    return repeats_itself(reading) or len(reading.tokens) >= MAX_NEW_TOKENS - 1


def says_twice(tokens: Sequence[int], ids: SpecialTokens) -> bool:
    """Whether some words follow at once upon the same ones; the mark between them may be missing at the
    end."""
    text = np.array([token for token in tokens if token < ids.eot])
    for shift in range(DOUBLED_TOKENS_MIN, len(text) - DOUBLED_TOKENS_MIN + 1):
        run, wanted = 0, max(DOUBLED_TOKENS_MIN, shift - 1)
        for same in (text[shift:] == text[:-shift]).tolist():
            run = run + 1 if same else 0
            if run >= wanted:
                return True
    return False


def close_timestamps(tokens: Sequence[int], ids: SpecialTokens) -> tuple[tuple[int, ...], float]:
    """The tokens up to the last time that closes a segment, that time among them, and its seconds; all of
    them and 0 where no time is."""
    last = next((at for at in range(len(tokens) - 1, -1, -1) if tokens[at] >= ids.time), None)
    if last is None:
        return tuple(tokens), 0.0
    # Two times in a row: the second opens a segment that was not read.
    opened = last > 0 and tokens[last - 1] >= ids.time
    return tuple(tokens[: last if opened else last + 1]), (tokens[last] - ids.time) * TIME_STEP
