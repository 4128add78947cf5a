"""The speech detector against ONNX Runtime, in blocks and in batches, and what it does with bad input."""

from pathlib import Path

import numpy as np
import pytest

from spool.errors import AudioNotFinite, ModelUnreadable, WeightsMismatch
from tests.worker.speech.sounds import blocks_of, conversation, golden, music, noise
from worker.speech import WEIGHTS, SpeechDetector, read_float32

# Float32 sums in another order and numpy's float32 tanh: 8.2e-6 at most in 59,449 frames; ONNX Runtime itself
# is 1.7e-6 from the same network in double precision.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def detector() -> SpeechDetector:
    return SpeechDetector.load()


def test_probabilities_are_the_reference_s(detector: SpeechDetector) -> None:
    (probabilities,) = detector.probabilities([conversation()])
    np.testing.assert_allclose(probabilities, golden()["probabilities"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("size", [100, 512, 7001])
def test_blocks_of_any_size_give_the_same(detector: SpeechDetector, size: int) -> None:
    samples = conversation()[:50_001]
    probabilities, count = detector.follow(blocks_of(samples, size))
    assert count == len(samples)
    assert len(probabilities) == 98  # the last frame is not full
    np.testing.assert_allclose(probabilities[:97], golden()["probabilities"][:97], rtol=0, atol=TOLERANCE)
    (alone,) = detector.probabilities([samples])
    np.testing.assert_allclose(probabilities, alone, rtol=0, atol=TOLERANCE)
    at_once, _ = detector.follow([samples])
    np.testing.assert_array_equal(probabilities, at_once)  # to the bit: chunks are cut by them


def test_recordings_of_a_batch_do_not_disturb_each_other(detector: SpeechDetector) -> None:
    recordings = [conversation()[:70_000], noise(1.0), np.zeros(0, np.float32), conversation()[:512]]
    together = detector.probabilities(recordings)
    for recording, probabilities in zip(recordings, together, strict=True):
        (alone,) = detector.probabilities([recording])
        np.testing.assert_allclose(probabilities, alone, rtol=0, atol=TOLERANCE)
    assert [len(row) for row in together] == [137, 32, 0, 1]


@pytest.mark.parametrize("level", [0.0, 1e-4, 0.1])
def test_silence_and_noise_are_not_speech(detector: SpeechDetector, level: float) -> None:
    (probabilities,) = detector.probabilities([noise(5.0, level)])
    assert probabilities[2:].max() < 0.3


def test_music_is_not_taken_for_speech(detector: SpeechDetector) -> None:
    (probabilities,) = detector.probabilities([music(10.0)])
    assert np.mean(probabilities >= 0.5) < 0.05


def test_a_sample_that_is_no_number_is_named(detector: SpeechDetector) -> None:
    samples = noise(3.0)
    samples[40_000] = np.nan
    with pytest.raises(AudioNotFinite, match=r"sample 40000 \(2\.500 s\)"):
        detector.follow(blocks_of(samples))
    with pytest.raises(AudioNotFinite, match="sample 40000"):
        detector.probabilities([samples])


def test_two_channels_are_refused(detector: SpeechDetector) -> None:
    with pytest.raises(ValueError, match="one channel"):
        detector.probabilities([np.zeros((100, 2), np.float32)])


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    tensors = read_float32(WEIGHTS)
    with pytest.raises(WeightsMismatch, match=r"conv2\.weight"):
        SpeechDetector({**tensors, "conv2.weight": tensors["conv1.weight"]})
    with pytest.raises(ModelUnreadable, match="cannot be read"):
        SpeechDetector.load(tmp_path / "none.safetensors")
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(WEIGHTS.read_bytes()[:5000])
    with pytest.raises(ModelUnreadable, match="not a safetensors file"):
        SpeechDetector.load(cut)
