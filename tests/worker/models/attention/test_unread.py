"""Which sounds of a window no word begins in."""

import itertools

import numpy as np
import pytest

from worker.models import ROUNDS_MAX, SAMPLE_RATE, Unread, Window, find_unread, sounds, unread_spans

HEARD = [(1.0, 3.0), (5.0, 6.0), (9.0, 12.0)]


def bursts(seconds: float, *spans: tuple[float, float]) -> np.ndarray:
    """Faint noise, and loud noise in the spans."""
    noise = np.random.default_rng(0).normal(size=round(seconds * SAMPLE_RATE)).astype(np.float32)
    level = np.full(len(noise), 1e-3, np.float32)
    for first, last in spans:
        level[round(first * SAMPLE_RATE) : round(last * SAMPLE_RATE)] = 0.1
    return noise * level


def test_sounds_lie_between_pauses_of_half_a_second() -> None:
    spans = sounds(bursts(14.0, (1.0, 2.0), (2.3, 3.0), (5.0, 6.0), (9.0, 12.0)))
    assert len(spans) == 3
    for span, expected in zip(spans, HEARD, strict=True):
        assert span == pytest.approx(expected, abs=0.05)
    assert sounds(np.zeros(0, np.float32)) == []


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ((1.1, 2.0, 5.2, 9.1, 11.0), []),
        ((1.1, 5.2), [(8.7, 14.0)]),  # up to the window's end
        ((1.1, 9.1), [(4.7, 6.3)]),
        ((1.1,), [(4.7, 14.0)]),  # neighbours are one
        ((5.2, 9.1), [(0.7, 3.3)]),
        ((1.1, 3.5, 9.1), []),  # begun in the pause before its sound
        ((1.1, 4.9, 8.0), []),
        ((1.1, 2.95, 9.1), []),  # and a little before that pause
    ],
)
def test_a_sound_without_a_start_is_unread(starts: tuple[float, ...], expected: list[object]) -> None:
    spans = unread_spans(HEARD, starts, 14.0)
    assert [pytest.approx(span) for span in expected] == spans


def test_a_click_is_not_asked_again() -> None:
    assert unread_spans([(1.0, 3.0), (5.0, 5.4)], (1.1,), 8.0) == []


def test_what_is_asked_again_lies_in_the_window_and_is_shorter() -> None:
    samples = bursts(14.0, *HEARD)
    window = Window(1000, 1000 + len(samples), 1)
    (rest,) = find_unread(window, samples, [1.1, 5.2]).windows
    assert (rest.stop, rest.round) == (window.stop, 2)
    assert (rest.start - window.start) / SAMPLE_RATE == pytest.approx(8.7, abs=0.05)
    assert find_unread(Window(1000, window.stop, ROUNDS_MAX), samples, [1.1, 5.2]) == Unread()
    assert find_unread(window, samples, []) == Unread()
    alone = bursts(3.0, (0.2, 3.0))
    assert find_unread(Window(0, len(alone)), alone, [5.0]).windows == ()


@pytest.mark.parametrize(
    ("starts", "stretched"),
    [
        ((1.1, 2.5, 5.2, 9.1, 11.0), False),
        ((1.1, 5.2, 9.1, 11.9), True),  # 2.8 s of sound from 9.1 on in one word
        ((0.5, 2.5, 5.2, 9.5, 11.0), False),  # the pause does not count
        ((1.1, 2.9, 5.9, 11.2), True),  # the end of one sound and most of the next
    ],
)
def test_a_word_that_would_last_too_long_is_stretched(starts: tuple[float, ...], stretched: bool) -> None:
    samples = bursts(14.0, *HEARD)
    assert find_unread(Window(0, len(samples)), samples, starts).stretched is stretched


@pytest.mark.parametrize("seed", range(8))
def test_every_chain_of_windows_ends(seed: int) -> None:
    generator = np.random.default_rng(seed)
    samples = bursts(30.0, *((second, second + 0.9) for second in range(0, 30, 2)))
    todo, asked = [Window(0, len(samples))], 0
    while todo:
        window = todo.pop()
        asked += 1
        starts = sorted(generator.uniform(0, window.seconds, 2).tolist())
        again = find_unread(window, samples[window.start : window.stop], starts).windows
        assert all(window.start <= each.start < each.stop <= window.stop for each in again)
        assert all(before.stop <= after.start for before, after in itertools.pairwise(again))
        todo += again
    assert asked < 100
