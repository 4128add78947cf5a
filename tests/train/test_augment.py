"""Augmentations change the sound and keep what the targets rely on."""

import numpy as np
import pytest

from ops.train.data import augment, noises
from ops.train.data.features import FLOOR, MELS, filterbank, log_mel, normalise
from ops.train.data.mixture import joined

RNG_SEED = 11


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(RNG_SEED)


@pytest.fixture
def mels(rng: np.random.Generator) -> np.ndarray:
    return (rng.standard_normal((150, MELS)) - 8).astype(np.float32)


def test_a_stretch_by_one_is_the_same_and_by_two_halves_the_frames(mels: np.ndarray) -> None:
    assert np.allclose(augment.stretched(mels, 1.0), mels, atol=1e-5)
    assert len(augment.stretched(mels, 2.0)) == 75
    assert len(augment.stretched(mels, 0.5)) == 300


def test_a_vocal_tract_of_the_same_length_is_the_same(mels: np.ndarray) -> None:
    assert np.allclose(augment.other_tract(mels, 100), mels, atol=1e-4)


def test_a_shorter_tract_moves_a_tone_to_another_band() -> None:
    tone = np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000).astype(np.float32)
    before = log_mel(tone)
    after = augment.other_tract(before, 80)  # band f takes the energy of 0.8 f
    bank_centres = filterbank().argmax(axis=0) * 16_000 / 512
    heard = bank_centres[after.mean(axis=0).argmax()]
    assert 1150 < heard < 1350


def test_noise_raises_no_speech_frame_by_more_than_its_share(
    mels: np.ndarray, rng: np.random.Generator
) -> None:
    noise = (rng.standard_normal((40, MELS)) - 3).astype(np.float32)
    heard = augment.with_noise(mels, noise, 60.0, rng)
    assert heard.shape == mels.shape
    assert np.all(heard >= mels - 1e-4)
    assert np.abs(heard - mels).mean() < 0.01


def test_a_room_keeps_the_length_and_trails_into_silence() -> None:
    mels = np.full((100, MELS), FLOOR, np.float32)
    mels[:20] = 0.0
    heard = augment.in_a_room(mels, 0.4, 0.1)
    assert heard.shape == mels.shape
    assert heard[25].mean() > heard[55].mean() > mels[55].mean()


def test_a_band_limit_leaves_the_bands_below(mels: np.ndarray, rng: np.random.Generator) -> None:
    heard = augment.band_limited(mels, 60, -14.0, rng)
    assert np.array_equal(heard[:, :60], mels[:, :60])
    assert abs(heard[:, 60:].mean() + 14.0) < 0.1


@pytest.mark.parametrize("strong", [False, True])
def test_variation_gives_finite_features_of_a_like_length(mels: np.ndarray, strong: bool) -> None:
    noise = np.full((30, MELS), -5.0, np.float32)
    for seed in range(60):
        heard = augment.varied(mels, noise, np.random.default_rng(seed), strong=strong)
        assert np.isfinite(heard).all()
        assert heard.dtype == np.float32
        assert 0.7 * len(mels) < len(heard) < 1.3 * len(mels)


def test_the_same_seed_gives_the_same_variation(mels: np.ndarray) -> None:
    noise = np.full((30, MELS), -5.0, np.float32)
    first, second = (augment.varied(mels, noise, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first, second)


def test_a_mask_hides_and_does_not_shorten(mels: np.ndarray, rng: np.random.Generator) -> None:
    heard = augment.masked(normalise(mels), rng)
    assert heard.shape == mels.shape
    assert np.all((heard == 0.0) | (heard == normalise(mels)))


def test_joining_keeps_every_word_in_order(mels: np.ndarray, rng: np.random.Generator) -> None:
    heard, text = joined([(mels, "one"), (mels[:50], ""), (mels[:60], "two three")], rng, 30)
    assert text == "one two three"
    assert len(heard) >= 150 + 50 + 60 + 2
    assert len(heard) <= 150 + 50 + 60 + 4 * 30


@pytest.mark.parametrize("kind", sorted(noises.KINDS))
@pytest.mark.parametrize("count", [160, 40_001])
def test_every_kind_of_noise_has_its_length_and_stays_in_range(kind: str, count: int) -> None:
    for seed in range(5):
        sound = noises.KINDS[kind](count, np.random.default_rng(seed))
        assert sound.shape == (count,)
        assert sound.dtype == np.float32
        assert np.abs(sound).max() <= 1.0


def test_babble_is_made_of_many_voices(rng: np.random.Generator) -> None:
    voices = [rng.standard_normal(900).astype(np.float32) for _ in range(3)]
    sound = noises.babble(2000, rng, voices)
    assert sound.shape == (2000,)
    assert np.abs(sound).max() > 0.0


def test_trimming_takes_the_quiet_at_either_end_alone(mels: np.ndarray, rng: np.random.Generator) -> None:
    padded = np.concatenate(
        [np.full((60, MELS), FLOOR, np.float32), mels, np.full((80, MELS), FLOOR, np.float32)]
    )
    trimmed = augment.trimmed(padded, rng)
    assert len(mels) < len(trimmed) <= len(mels) + 16
    assert np.isin(mels[:, 0], trimmed[:, 0]).all()
