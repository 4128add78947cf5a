"""The default diarizer on real voices that it was not tuned on, and steps in batches."""

import numpy as np
import pytest

from ops.accuracy.diarization.der import diarization_error
from spool.domain import Recognition
from tests.worker.speech.sounds import blocks_of
from tests.worker.speech.voices import OTHERS, READERS, Floats, Turns, mixed
from worker.diarization import (
    Diarization,
    EncodeVoices,
    SpeakerBounds,
    load_diarization,
    load_network,
    run_here,
)
from worker.engine import StepRecognizer
from worker.models import DecodeRequest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def twelve() -> tuple[Floats, Turns]:
    """Twelve people, each heard twice in some two minutes."""
    names = [*READERS[:4], *OTHERS]
    return mixed([*names, *reversed(names)])


def diarized(samples: Floats, bounds: SpeakerBounds, size: int = 16_000) -> Diarization:
    model = load_diarization("default")
    return model.diarize(lambda: blocks_of(samples, size), run_here(load_network(model.path)), bounds)


def confused(result: Diarization, turns: Turns) -> float:
    """The share of the time that goes to a wrong speaker. Pauses within a clip are no miss here."""
    heard = [(segment.start, segment.end, segment.speaker) for segment in result.segments]
    return diarization_error(turns, heard, 0.25).confusion


def test_two_people_are_told_apart() -> None:
    samples, turns = mixed([READERS[0], READERS[3], READERS[0], READERS[3]])
    result = diarized(samples, SpeakerBounds())
    assert result.speakers == 2
    assert confused(result, turns) < 0.02


def test_twelve_people_are_mostly_told_apart_where_their_number_is_known(
    twelve: tuple[Floats, Turns],
) -> None:
    samples, turns = twelve
    result = diarized(samples, SpeakerBounds(12, 12))
    assert result.speakers == 12
    assert confused(result, turns) < 0.2


def test_the_segments_do_not_depend_on_the_blocks_that_are_read(twelve: tuple[Floats, Turns]) -> None:
    samples = twelve[0][: 45 * 16_000]
    whole = diarized(samples, SpeakerBounds(), len(samples))
    assert diarized(samples, SpeakerBounds(), 7_001).segments == whole.segments


def test_a_step_s_output_is_the_same_in_any_batch() -> None:
    recognizer = StepRecognizer(load_diarization("default").path)
    samples, _ = mixed([READERS[1], OTHERS[1]])
    steps = [EncodeVoices(((0, 160), (40, 160), (80, 90))), EncodeVoices(((10, 120),))]
    asks = [DecodeRequest(step=step) for step in steps]
    together = recognizer.recognize([samples, samples[:48_000]], asks)
    turned = recognizer.recognize([samples[:48_000], samples], asks[::-1])
    (alone,) = recognizer.recognize([samples], asks[:1])
    assert all(isinstance(each, Recognition) for each in (*together, *turned, alone))
    for one, other in ((together[0], alone), (together[0], turned[1]), (together[1], turned[0])):
        assert isinstance(one, Recognition)
        assert isinstance(other, Recognition)
        np.testing.assert_array_equal(one.output, other.output)
