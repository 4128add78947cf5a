"""The speech detector beside the level gate: what holds no speech is cut off, and nothing else is."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from spool.domain import ChunkSpan
from tests.worker.speech.sounds import Floats, blocks_of, conversation, golden, music, noise
from worker.segmentation import Chunk, plan_channels, plan_chunks
from worker.speech import listeners

RATE = 16_000


def spans_of(samples: Floats, size: int = RATE, listen: bool = True) -> list[ChunkSpan]:
    listener = listeners(1)[0] if listen else None
    return [chunk.span for chunk in plan_chunks(blocks_of(samples, size), listener=listener)]


def spoken(spans: Sequence[ChunkSpan]) -> float:
    return sum(span.core for span in spans if span.speech) / RATE


@pytest.fixture(scope="module")
def interview() -> Floats:
    """43 s of speech, 20 s of music, 43 s of speech, 12 s of loud noise."""
    talk = conversation()[:-80_000]
    return np.concatenate([talk, music(20.0), talk, noise(12.0, 0.03)])


def test_music_and_noise_are_not_decoded(interview: Floats) -> None:
    spans = spans_of(interview)
    assert spans[0].core_start == 0
    assert spans[-1].core_end == len(interview)
    assert all(before.core_end == after.core_start for before, after in pairwise(spans))
    talk = (len(interview) / RATE - 32) / 2
    assert 2 * talk < spoken(spans) < 2 * talk + 3
    assert not spans[-1].speech
    assert spoken(spans_of(interview, listen=False)) == pytest.approx(len(interview) / RATE, abs=1)


def test_what_is_decoded_holds_all_words(interview: Floats) -> None:
    probabilities = golden()["probabilities"][: (len(conversation()) - 80_000) // 512]
    loud = np.flatnonzero(probabilities >= 0.5) * 512
    heard = [span for span in spans_of(interview) if span.speech]
    for sample in loud.tolist():
        assert any(span.start <= sample - 8000 * (sample > 8000) < span.end for span in heard)


@pytest.mark.parametrize("size", [160, 777, 320_000])
def test_the_plan_does_not_depend_on_the_blocks(interview: Floats, size: int) -> None:
    assert spans_of(interview, size) == spans_of(interview, len(interview))


def test_of_noise_alone_nothing_is_decoded() -> None:
    spans = spans_of(noise(100.0, 0.03))
    assert spoken(spans) == 0
    assert max(span.core for span in spans) == 30 * RATE


def test_three_seconds_without_speech_are_decoded() -> None:
    """Too short to be sure of: of one quiet speaker 2 s cut words off."""
    assert spoken(spans_of(noise(3.0, 0.03))) == pytest.approx(3.0)


def test_channels_are_heard_apart() -> None:
    talk = conversation()
    both = np.stack([talk, noise(len(talk) / RATE, 0.03)[: len(talk)]], axis=1)
    hearing = listeners(2)
    chunks: list[Chunk] = list(plan_channels(blocks_of(both), 2, listeners=hearing))
    speaking = {chunk.span.channel for chunk in chunks if chunk.speech}
    assert speaking == {0}
    (alone,) = listeners(1)
    assert list(plan_chunks([talk], listener=alone))
    np.testing.assert_array_equal(hearing[0].probabilities, alone.probabilities)
    assert alone.take_ns() > 0
    assert alone.take_ns() == 0
