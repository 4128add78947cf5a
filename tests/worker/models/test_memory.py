"""What the encoder holds while it runs, and after."""

import mlx.core as mx
import numpy as np

from tests.worker.models.golden import model


def noise(seconds: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, int(16_000 * seconds)).astype(np.float32)


def peak(utterances: list[np.ndarray]) -> int:
    """Bytes that encoding them takes beyond what stays: features before, frames after."""
    loaded = model("hybrid.nemo")
    features = loaded.features(utterances)
    mx.eval(features[0])
    held = mx.get_active_memory()
    mx.reset_peak_memory()
    encoded = loaded.encode_features(*features)
    mx.eval(encoded.frames)
    return mx.get_peak_memory() - held - 4 * encoded.frames.nbytes


def test_a_batch_takes_the_memory_of_its_longest_utterance() -> None:
    peak([noise(8.0)])  # tables that are kept
    one = peak([noise(8.0)])
    many = peak([noise(8.0, seed) for seed in range(12)])
    assert one > 0
    assert many <= 1.5 * one


def test_nothing_stays_after_batches_of_many_lengths() -> None:
    loaded = model("hybrid.nemo")
    mx.eval(loaded.encode([noise(1.0)]).frames)
    held = mx.get_active_memory()
    lengths = np.random.default_rng(1).uniform(0.5, 6.0, (20, 3))
    for row in lengths:
        mx.eval(loaded.encode([noise(float(seconds)) for seconds in row]).frames)
    assert mx.get_active_memory() <= held + 100_000
