"""Whisper's log-mel features of one window of 30 seconds, or of a whole utterance.

Zeros behind the samples, then the transform; the ceiling is the window's own loudest band, so that the chunk
alone decides. Computed in 64 bit: a band 80 dB below the loudest is less than 32-bit rounding of the
transform leaves intact. (openai-whisper, whisper/audio.py; librosa's filters.mel(norm="slaney").)
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from spool.errors import AudioTooLong
from worker.models.conformer.config import PreprocessorConfig
from worker.models.front_ends.log_mel import mel_filters

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

SAMPLE_RATE = 16_000
WINDOW_SECONDS = 30
WINDOW_SAMPLES = SAMPLE_RATE * WINDOW_SECONDS
HOP = 160
TRANSFORM = 400
POWER_FLOOR = 1e-10
DYNAMIC_RANGE = 8.0  # of log10


@cache
def _filters(mels: int) -> Float64:
    """[mels, 201], rounded to float32 as trained."""
    return mel_filters(PreprocessorConfig(features=mels, n_fft=TRANSFORM)).astype(np.float64)


@cache
def _taper() -> Float64:
    taper: Float64 = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(TRANSFORM) / TRANSFORM)
    return taper


def log_mel(samples: Float32, mels: int) -> Float32:
    """Samples [N] at 16 kHz, at most 30 s -> [3000, mels] float32. Raises AudioTooLong."""
    if len(samples) > WINDOW_SAMPLES:
        raise AudioTooLong(
            f"a window of {len(samples) / SAMPLE_RATE:.2f} s; "
            f"Whisper's are at most {WINDOW_SAMPLES // SAMPLE_RATE} s"
        )
    return _log_mel(samples, WINDOW_SAMPLES, mels)


def whole_log_mel(samples: Float32, mels: int, shortest: int) -> Float32:
    """As `log_mel`, of samples [N] of any length, with zeros behind up to `shortest` -> [frames, mels]."""
    return _log_mel(samples, max(len(samples), shortest), mels)


def _log_mel(samples: Float32, length: int, mels: int) -> Float32:
    """Of samples with zeros behind, `length` in all."""
    half, count = TRANSFORM // 2, length // HOP
    padded = np.zeros(length + TRANSFORM, np.float64)
    padded[half : half + len(samples)] = samples
    window = padded[half : half + length]
    # Mirrored at both ends, the edge itself not repeated.
    padded[:half] = window[half:0:-1]
    padded[-half:] = window[-2 : -half - 2 : -1]
    # Frames behind the sound and its mirror are zero, and so is their power.
    active = count if len(samples) == length else min(count, len(samples) // HOP + 3)
    frames = np.lib.stride_tricks.sliding_window_view(padded, TRANSFORM)[::HOP][:active]
    spectrum = np.fft.rfft(frames * _taper(), axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    mel = np.full((count, mels), np.log10(POWER_FLOOR))
    mel[:active] = np.log10(np.maximum(power @ _filters(mels).T, POWER_FLOOR))
    scaled: Float32 = ((np.maximum(mel, mel.max() - DYNAMIC_RANGE) + 4.0) / 4.0).astype(np.float32)
    return scaled
