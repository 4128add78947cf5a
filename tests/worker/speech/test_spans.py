"""Spans of speech, of no speech, and the rest."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.speech.sounds import RATE, conversation, golden
from worker.speech import FRAME, SpanLabel, label_spans, silent_stretches, speech_stretches


def runs(*parts: tuple[float, float]) -> np.ndarray:
    """Probabilities as (value, seconds); a frame is 32 ms."""
    return np.concatenate([np.full(round(seconds / 0.032), value, np.float32) for value, seconds in parts])


def test_stretches_of_speech_are_the_reference_s() -> None:
    stretches = speech_stretches(golden()["probabilities"], len(conversation()))
    assert stretches == [tuple(row) for row in golden()["stretches"].tolist()]


def test_silence_keeps_its_margins_but_not_at_the_ends() -> None:
    probabilities = runs((0.1, 4.8), (0.9, 1.6), (0.19, 4.8), (0.9, 1.6), (0.0, 4.8))
    samples = len(probabilities) * FRAME
    half = RATE // 2
    first, second, third = silent_stretches(probabilities, samples)
    assert first == (0, int(4.8 * RATE) - half)
    assert second == (int(6.4 * RATE) + half, int(11.2 * RATE) - half)
    assert third == (int(12.8 * RATE) + half, samples)


def test_less_than_four_seconds_or_too_probable_is_no_silence() -> None:
    probabilities = runs((0.9, 1.6), (0.1, 3.968), (0.9, 1.6), (0.2, 8.0), (0.9, 1.6))
    assert silent_stretches(probabilities, len(probabilities) * FRAME) == []


def test_a_recording_without_speech_is_one_span() -> None:
    (span,) = label_spans(runs((0.05, 6.4)), int(6.4 * RATE) - 100)
    assert (span.start, span.end, span.label) == (0.0, (int(6.4 * RATE) - 100) / RATE, SpanLabel.none)
    (short,) = label_spans(runs((0.05, 1.0)), RATE)
    assert short.label is SpanLabel.unclear
    assert label_spans(np.zeros(0, np.float32), 0) == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 200)), min_size=1, max_size=20), st.integers(0, 511)
)
def test_spans_cover_the_recording_without_gap_or_overlap(
    parts: list[tuple[float, int]], missing: int
) -> None:
    probabilities = np.concatenate([np.full(count, value, np.float32) for value, count in parts])
    samples = len(probabilities) * FRAME - missing
    spans = label_spans(probabilities, samples)
    assert spans[0].start == 0.0
    assert spans[-1].end == samples / RATE
    assert all(before.end == after.start for before, after in itertools.pairwise(spans))
    assert all(span.end > span.start for span in spans)
    seconds = sum(span.end - span.start for span in spans if span.label is SpanLabel.speech)
    stretches = sum(end - start for start, end in speech_stretches(probabilities, samples))
    assert abs(seconds - stretches / RATE) < 1e-6
