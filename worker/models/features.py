"""Log-mel features as NeMo's AudioToMelSpectrogramPreprocessor computes them in inference.

Pre-emphasis over the utterance, a symmetric Hann window centred in the transform, frames centred on multiples
of the hop with zeros beyond the ends, power, mel filters, logarithm, then mean and unbiased deviation over
the frames of the utterance. One utterance at a time, so that nothing of a neighbour or of padding can enter.
The mel scale is Slaney's ("Auditory Toolbox", 1998), as in librosa's `filters.mel(norm="slaney")`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from worker.models.nemo.config import PreprocessorConfig

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

FRAMES_PER_BLOCK = 6_000  # one minute: keeps the transform of an hour out of memory
FRAMES_IN_CACHE = 128  # of transforms on a CPU: what is between them then stays in a core's cache
DEVIATION_FLOOR = 1e-5
MEL_LINEAR_HZ = 200.0 / 3.0  # below the break the scale is linear, this many Hz a mel
MEL_BREAK_HZ = 1_000.0
MEL_LOG_STEP = np.log(6.4) / 27.0


@dataclass(frozen=True, slots=True)
class HostSpectra:
    """The transform where it is computed without MLX, which any thread may do. `window` is [fft_length]."""

    config: PreprocessorConfig
    window: Float32

    def __call__(self, samples: Float32) -> Float32 | None:
        """Samples [N] -> squared magnitudes [N // hop, fft_length // 2 + 1] float32; None from less than a
        hop."""
        frames = len(samples) // self.config.hop_length
        if frames == 0:
            return None
        samples = np.asarray(samples, np.float32)
        return np.concatenate([self.power(*block) for block in _blocks(samples, self.config)])

    def power(self, padded: Float32, count: int) -> Float32:
        """As `FeatureExtractor.log_mel_of`, before the filters."""
        # A band near the guard holds a millionth of its frame's power, less than 32-bit rounding of the
        # transform leaves intact; in 64 bit it is exact, and on a CPU as fast.
        size, hop = self.config.fft_length, self.config.hop_length
        padded = np.ascontiguousarray(padded, np.float32)
        windows = as_strided(padded, (count, size), (hop * padded.itemsize, padded.itemsize), writeable=False)
        squares = np.empty((count, size // 2 + 1), np.float32)
        for first in range(0, count, FRAMES_IN_CACHE):
            some = slice(first, first + FRAMES_IN_CACHE)
            spectrum = np.fft.rfft((windows[some] * self.window).astype(np.float64), axis=-1)
            squares[some] = spectrum.real**2 + spectrum.imag**2
        return squares


class FeatureExtractor:
    """From samples to normalised log-mel. `filters` [mels, bins] and `window` [win_length] are the
    checkpoint's own where it holds them, else computed."""

    def __init__(
        self, config: PreprocessorConfig, filters: Float32 | None = None, window: Float32 | None = None
    ) -> None:
        self.config = config
        bank = mel_filters(config) if filters is None else filters
        self.filters = mx.array(bank.T)
        taper = np.zeros(config.fft_length, np.float32)
        start = (config.fft_length - config.win_length) // 2
        taper[start : start + config.win_length] = hann(config.win_length) if window is None else window
        self.window = mx.array(taper)
        on_cpu = mx.default_device() == mx.Device(mx.cpu)
        self.host_spectra = HostSpectra(config, taper) if on_cpu else None
        """None where the device computes the transform."""

    def frames_of(self, samples: int) -> int:
        """How many feature frames that many samples give."""
        return samples // self.config.hop_length

    def __call__(self, samples: Float32, power: Float32 | None = None) -> mx.array:
        """Samples [N] float32 at the config's rate -> [N // hop, mels] float32; no frames from less than a
        hop. `power` is what `host_spectra` has made of them."""
        frames = self.frames_of(len(samples))
        if frames == 0:
            return mx.zeros((0, self.config.features))
        if power is None:
            return self.normalise(self.log_mel(samples))
        rows = range(0, frames, FRAMES_PER_BLOCK)
        blocks = [self._mel_of(mx.array(power[first : first + FRAMES_PER_BLOCK])) for first in rows]
        return self.normalise(mx.concatenate(blocks) if len(blocks) > 1 else blocks[0])

    def log_mel(self, samples: Float32) -> mx.array:
        """Samples [N] -> log-mel [N // hop, mels], not normalised."""
        blocks = [self.log_mel_of(*block) for block in _blocks(samples, self.config)]
        return mx.concatenate(blocks) if len(blocks) > 1 else blocks[0]

    def log_mel_of(self, padded: Float32, count: int) -> mx.array:
        """The log-mel [count, mels] of transforms that begin a hop apart in `padded`, [(count - 1) * hop +
        fft_length] samples with pre-emphasis."""
        if self.host_spectra is not None:
            return self._mel_of(mx.array(self.host_spectra.power(padded, count)))
        size, hop = self.config.fft_length, self.config.hop_length
        windows = mx.as_strided(mx.array(padded), (count, size), (hop, 1)) * self.window
        transformed = mx.fft.rfft(windows, axis=-1)
        real, imaginary = mx.real(transformed), mx.imag(transformed)
        return self._mel_of(real * real + imaginary * imaginary)

    def _mel_of(self, power: mx.array) -> mx.array:
        """Squared magnitudes [T, fft_length // 2 + 1] -> log-mel [T, mels]."""
        if self.config.mag_power != 2.0:
            power = mx.power(power, self.config.mag_power / 2.0)
        mel = power @ self.filters
        guard = self.config.log_zero_guard_value
        return mx.log(mel + guard if self.config.log_zero_guard_type == "add" else mx.maximum(mel, guard))

    def normalise(self, mel: mx.array) -> mx.array:
        """Log-mel [T, mels] of a whole utterance, T at least 1, as the model was trained to hear it."""
        if self.config.normalize is None:
            return mel
        # Taking the first frame off changes neither deviation nor result, but makes digital silence exactly
        # zero: the rounding of a mean of equal numbers, divided by the floor, would otherwise be a signal.
        mel = mel - mel[:1]
        axes = 0 if self.config.normalize == "per_feature" else None
        count = mel.shape[0] if axes == 0 else mel.size
        centred = mel - mx.mean(mel, axis=axes, keepdims=True)
        variance = mx.sum(centred * centred, axis=axes, keepdims=True) / max(1, count - 1)
        return centred / (mx.sqrt(variance) + DEVIATION_FLOOR)


def _blocks(samples: Float32, config: PreprocessorConfig) -> Iterator[tuple[Float32, int]]:
    """The samples of up to `FRAMES_PER_BLOCK` transforms, with pre-emphasis and with zeros beyond the ends,
    and how many transforms they are."""
    frames, size, hop = len(samples) // config.hop_length, config.fft_length, config.hop_length
    padded = np.zeros(len(samples) + 2 * (size // 2), np.float32)
    padded[size // 2 : size // 2 + len(samples)] = _pre_emphasis(samples, config.preemph)
    for first in range(0, frames, FRAMES_PER_BLOCK):
        count = min(FRAMES_PER_BLOCK, frames - first)
        yield padded[first * hop : (first + count - 1) * hop + size], count


def _pre_emphasis(samples: Float32, factor: float | None) -> Float32:
    if not factor:
        return samples
    emphasised = samples.copy()
    emphasised[1:] -= np.float32(factor) * samples[:-1]
    return emphasised


def hann(length: int) -> Float32:
    """A symmetric Hann window, [length]."""
    # In 32 bit throughout, as PyTorch made the windows that models were trained with.
    step = np.float32(2.0 * np.pi / max(1, length - 1))
    half = np.float32(0.5)
    window: Float32 = half - half * np.cos(np.arange(length, dtype=np.float32) * step)
    return window


def mel_filters(config: PreprocessorConfig) -> Float32:
    """Triangular filters of equal area, [mels, fft_length // 2 + 1]."""
    bins = np.linspace(0.0, config.sample_rate / 2, config.fft_length // 2 + 1)
    top = config.highfreq or config.sample_rate / 2
    edges = _mel_to_hz(np.linspace(_hz_to_mel(config.lowfreq), _hz_to_mel(top), config.features + 2))
    width = np.diff(edges)
    ramps = edges[:, None] - bins[None, :]
    rising = -ramps[:-2] / width[:-1, None]
    falling = ramps[2:] / width[1:, None]
    area = 2.0 / (edges[2:] - edges[:-2])
    return (np.maximum(0.0, np.minimum(rising, falling)) * area[:, None]).astype(np.float32)


def _hz_to_mel(hertz: float) -> float:
    if hertz < MEL_BREAK_HZ:
        return hertz / MEL_LINEAR_HZ
    return float(MEL_BREAK_HZ / MEL_LINEAR_HZ + np.log(hertz / MEL_BREAK_HZ) / MEL_LOG_STEP)


def _mel_to_hz(mels: Float64) -> Float64:
    break_mel = MEL_BREAK_HZ / MEL_LINEAR_HZ
    above = MEL_BREAK_HZ * np.exp(MEL_LOG_STEP * (mels - break_mel))
    return np.where(mels < break_mel, mels * MEL_LINEAR_HZ, above)
