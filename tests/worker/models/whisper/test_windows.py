"""What becomes of a window, case by case."""

from dataclasses import replace

import numpy as np
import pytest

from ops.accuracy.whisper.sounds import hum, room_tone, white_noise
from worker.models import (
    SAMPLE_RATE,
    Prompt,
    PromptAnswer,
    SpecialTokens,
    Window,
    WindowOutcome,
    close_timestamps,
    is_steady,
    quietest,
)
from worker.models.whisper.windows import judge, says_twice

IDS = SpecialTokens(51864)
T = IDS.time
SPOKEN = Window(1000, 1000 + 10 * SAMPLE_RATE)


def changing(seconds: int, seed: int = 0) -> np.ndarray:
    """Noise that rises and falls four times a second, as speech does."""
    times = np.arange(seconds * SAMPLE_RATE) / SAMPLE_RATE
    noise = np.random.default_rng(seed).normal(size=len(times)) * (1.1 + np.sin(2 * np.pi * 4 * times))
    return noise.astype(np.float32)


NOISE = changing(10)


def reading(
    tokens: tuple[int, ...],
    words: int = 3,
    *,
    timestamps: bool = True,
    compression: float = 1.0,
    ended: bool = True,
    mean: float = -0.5,
    language: str = "en",
) -> PromptAnswer:
    prompt = Prompt((), timestamps=timestamps, language=language)
    return PromptAnswer(prompt, tokens, ended, words, compression, mean)


def decide(*readings: PromptAnswer, window: Window = SPOKEN, no_speech: float = 0.0) -> WindowOutcome:
    return judge(window, readings, no_speech, NOISE, IDS)


WHOLE = (T, 5, 6, T + 480)  # closed at 9.6 s of 10
EARLY = (T, 5, 6, T + 200, T + 200, 7)  # the second segment was opened at 4 s and not closed


def test_silence_is_a_hush() -> None:
    assert decide(reading(WHOLE), no_speech=0.61) == WindowOutcome("silent")
    assert decide(reading(WHOLE), no_speech=0.6).outcome == "kept"


def test_a_steady_sound_is_a_hush_however_loud() -> None:
    for make in (white_noise, room_tone, hum):
        for level in (-60.0, -20.0):
            assert judge(SPOKEN, [reading(WHOLE)], 0.0, make(10.0, level), IDS) == WindowOutcome("silent")
    assert not is_steady(NOISE)
    assert not is_steady(hum(3.9))
    # A second of sound in ten of hum is no part of it.
    interrupted = hum(10.0)
    interrupted[:SAMPLE_RATE] += NOISE[:SAMPLE_RATE]
    assert not is_steady(interrupted)


def test_a_window_read_to_its_end_is_kept() -> None:
    assert decide(reading(WHOLE)) == WindowOutcome("kept", WHOLE)


def test_the_rest_behind_the_last_closed_time_is_asked_again() -> None:
    rest = Window(1000 + 4 * SAMPLE_RATE, SPOKEN.stop, 1)
    assert decide(reading(EARLY)) == WindowOutcome("kept", (T, 5, 6, T + 200), (rest,))


def test_the_last_round_keeps_everything() -> None:
    assert decide(reading(EARLY), window=Window(1000, SPOKEN.stop, 4)) == WindowOutcome("kept", EARLY)


def test_the_mode_with_times_is_taken_where_it_is_two_words_ahead() -> None:
    plain = reading((5, 6, 7), 5, timestamps=False)
    assert decide(reading(WHOLE, 6), plain) == WindowOutcome("kept", (5, 6, 7), reading=1)
    assert decide(reading(WHOLE, 7), plain) == WindowOutcome("kept", WHOLE)
    # However sure it is.
    assert decide(reading(WHOLE, 6, mean=-0.1), plain).reading == 1
    assert decide(reading(WHOLE, 7, mean=-0.9), plain).reading == 0


def test_an_unsure_answer_without_times_is_doubtful() -> None:
    tokens = (5, 6, 7)
    sure, unsure = (reading(tokens, timestamps=False, mean=mean) for mean in (-0.69, -0.71))
    assert decide(sure) == WindowOutcome("kept", tokens)
    assert decide(unsure) == WindowOutcome("kept", tokens, doubtful=True)
    assert not decide(reading(WHOLE, mean=-0.9)).doubtful


def test_in_a_short_window_the_mode_with_times_must_be_surer_too() -> None:
    short = Window(1000, 1000 + int(7.9 * SAMPLE_RATE))
    plain = reading((5, 6, 7), 5, timestamps=False)
    assert decide(reading(WHOLE, 7, mean=-0.4), plain, window=short).reading == 0
    assert decide(reading(WHOLE, 7, mean=-0.6), plain, window=short).reading == 1
    assert decide(reading(WHOLE, 6, mean=-0.4), plain, window=short).reading == 1
    loop = reading(WHOLE, 90, mean=-0.1, compression=2.5)
    assert decide(loop, plain, window=short).reading == 1


def test_the_language_is_kept_whose_answer_without_times_is_surer() -> None:
    german = [reading(WHOLE, 9, mean=-0.1, language="de"), reading((8,), timestamps=False, language="de")]
    english = [reading(WHOLE), reading((5, 6, 7), timestamps=False, mean=-0.4)]
    assert decide(*german, *english) == WindowOutcome("kept", (5, 6, 7), reading=3)
    # A loop says nothing for its language; the answer with times does then.
    loop = reading((5, 6, 7), timestamps=False, mean=-0.1, compression=2.5)
    assert decide(*german, reading(WHOLE, mean=-0.6), loop).reading == 0
    assert decide(*german, reading(WHOLE, mean=-0.4), loop).reading == 2
    # Where times were asked for, the answers with times decide.
    assert decide(german[0], english[0]).reading == 0
    assert decide(english[0], german[0]).reading == 1
    # Of equals the likelier language.
    assert decide(english[1], reading((8,), timestamps=False, mean=-0.4, language="de")).reading == 0


@pytest.mark.parametrize(
    "loop",
    [reading(WHOLE, 90, compression=2.5), reading(tuple(range(223)), 90), reading(WHOLE, 90, ended=False)],
)
def test_a_loop_is_rejected(loop: PromptAnswer) -> None:
    plain = reading((5,), 1, timestamps=False)
    assert decide(loop, plain) == WindowOutcome("kept", (5,), reading=1)
    full = replace(SPOKEN, full=True)
    assert decide(loop) == WindowOutcome("divided", again=(full,))
    cut = 1000 + quietest(NOISE)
    halves = (Window(1000, cut, 1, full=True), Window(cut, SPOKEN.stop, 1, full=True))
    assert decide(loop, window=full) == WindowOutcome("divided", again=halves)
    assert decide(loop, window=Window(0, 10 * SAMPLE_RATE, 4, full=True)) == WindowOutcome("lost")
    short = Window(0, 4 * SAMPLE_RATE, full=True)
    assert judge(short, [loop], 0.0, NOISE[: short.stop], IDS) == WindowOutcome("lost")


@pytest.mark.parametrize(
    ("tokens", "twice"),
    [
        ((1, 2, 3, 4, 9, 1, 2, 3, 4, 9), True),
        ((7, 1, 2, 3, 4, 9, 1, 2, 3, 4), True),  # the mark at the end is missing
        ((T, 1, 2, 3, 4, T + 100, T + 100, 1, 2, 3, 4, T + 200), True),
        ((1, 2, 3, 1, 2, 3), False),  # three numbers, read again
        ((1, 2, 3, 4, 5, 6, 1, 2, 3, 4), False),
        ((), False),
    ],
)
def test_what_is_said_twice_is_asked_again_in_the_full_window(tokens: tuple[int, ...], twice: bool) -> None:
    answer, full = reading(tokens, timestamps=False), replace(SPOKEN, full=True)
    assert says_twice(tokens, IDS) == twice
    assert decide(answer) == (
        WindowOutcome("divided", again=(full,)) if twice else WindowOutcome("kept", tokens)
    )
    # There it is believed: people do repeat themselves
    assert decide(answer, window=full).kept == tokens


def test_every_chain_of_windows_ends() -> None:
    todo, asked = [Window(0, 30 * SAMPLE_RATE)], 0
    samples = changing(30, 1)
    while todo:
        window = todo.pop()
        asked += 1
        part = samples[window.start : window.stop]
        answers = [reading(WHOLE, compression=9.0)] if asked % 2 else [reading(EARLY)]
        todo += judge(window, answers, 0.0, part, IDS).again
    assert asked <= 62  # two halves in each of four rounds at most, and each window once more in full


def test_closed() -> None:
    assert close_timestamps((5, 6), IDS) == ((5, 6), 0.0)
    assert close_timestamps((T, 5, T + 50), IDS) == ((T, 5, T + 50), 1.0)
    assert close_timestamps((T, 5, T + 50, T + 50), IDS) == ((T, 5, T + 50), 1.0)
    assert close_timestamps((T, 5, T + 50, T + 60, 9), IDS) == ((T, 5, T + 50), 1.2)


def test_the_quietest_place_of_the_middle() -> None:
    samples = NOISE.copy()
    samples[:SAMPLE_RATE] = 0  # quieter still, but at the edge
    samples[5 * SAMPLE_RATE : 5 * SAMPLE_RATE + 4800] *= 0.01
    assert abs(quietest(samples) - 5 * SAMPLE_RATE - 2400) <= 10
    assert quietest(np.zeros(3, np.float32)) == 0
