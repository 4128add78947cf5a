"""Log-mel features as NeMo's AudioToMelSpectrogramPreprocessor computes them in inference.

Pre-emphasis over the utterance, a symmetric Hann window centred in the transform, frames centred on multiples
of the hop with zeros beyond the ends, power, mel filters, logarithm, then mean and unbiased deviation over
the frames of the utterance. A batch is computed together, but no sum holds anything of a neighbour or of
padding. The mel scale is Slaney's ("Auditory Toolbox", 1998), as in librosa's `filters.mel(norm="slaney")`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from kernels.nn.features import filters_of, mel_bands, normalise_frames
from worker.models.conformer.config import PreprocessorConfig

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

FRAMES_PER_BLOCK = 2_000  # of a batch on a CPU: what is between two operations then stays in the cache
FRAMES_PER_LAUNCH = 24_000  # of a batch on a GPU, four minutes: keeps an hour's transform out of memory
FRAMES_IN_CACHE = 64  # of transforms on a CPU: what is between them then stays in a core's cache
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
        return self.power(_pad_samples(samples, self.config), frames) if frames else None

    def power(self, padded: Float32, count: int) -> Float32:
        """As `FeatureExtractor.log_mel_of`, before the filters."""
        squares = np.empty((count, self.config.fft_length // 2 + 1), np.float32)
        self.write_power(padded, squares)
        return squares

    def write_power(self, padded: Float32, squares: Float32) -> None:
        """Those of the first transforms in `padded`, into `squares`, [count, fft_length // 2 + 1]."""
        # A band near the guard holds a millionth of its frame's power, less than 32-bit rounding of the
        # transform leaves intact; in 64 bit it is exact, and on a CPU as fast.
        count, size, hop = len(squares), self.config.fft_length, self.config.hop_length
        padded = np.ascontiguousarray(padded, np.float32)
        windows = as_strided(padded, (count, size), (hop * padded.itemsize, padded.itemsize), writeable=False)
        # The same memory for each block: new memory would come from the system each time, page by page.
        rows = min(FRAMES_IN_CACHE, count)
        tapered, wide = np.empty((rows, size), np.float32), np.empty((rows, size), np.float64)
        spectrum = np.empty((rows, squares.shape[1]), np.complex128)
        real, imaginary = np.empty((2, rows, squares.shape[1]), np.float64)
        for first in range(0, count, rows):
            of, to = slice(min(rows, count - first)), slice(first, first + rows)
            wide[of] = np.multiply(windows[to], self.window, out=tapered[of])
            np.fft.rfft(wide[of], axis=-1, out=spectrum[of])
            np.square(spectrum.real[of], out=real[of])
            squares[to] = np.add(real[of], np.square(spectrum.imag[of], out=imaginary[of]), out=real[of])


class FeatureExtractor:
    """From samples to normalised log-mel. `filters` [mels, bins] and `window` [win_length] are the
    checkpoint's own where it holds them, else computed."""

    def __init__(
        self, config: PreprocessorConfig, filters: Float32 | None = None, window: Float32 | None = None
    ) -> None:
        self.config = config
        self.filters = filters_of((mel_filters(config) if filters is None else filters).T)
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

    def __call__(self, samples: Float32) -> mx.array:
        """Samples [N] float32 at the config's rate -> [N // hop, mels] float32; no frames from less than a
        hop."""
        return self.batch([samples])[0][0]

    def batch(
        self, samples: Sequence[Float32], powers: Sequence[Float32 | None] | None = None
    ) -> tuple[mx.array, NDArray[np.int32]]:
        """Utterances of [N] float32 each -> [B, T, mels] float32, zeros past the frames of each, and how many
        these are, int32 [B]. `powers`: what `host_spectra` has made of each already, or None."""
        lengths = np.array([self.frames_of(len(row)) for row in samples], np.int32)
        if not lengths.any():
            return mx.zeros((len(samples), 0, self.config.features)), lengths
        mel = self._log_mel(samples, lengths, powers or [None] * len(samples))
        return self._normalise(mel, lengths), lengths

    def log_mel(self, samples: Float32) -> mx.array:
        """Samples [N], at least a hop of them -> log-mel [N // hop, mels], not normalised."""
        return self._log_mel([samples], np.array([self.frames_of(len(samples))], np.int32), [None])[0]

    def log_mel_of(self, padded: Float32, count: int) -> mx.array:
        """The log-mel [count, mels] of transforms that begin a hop apart in `padded`, [(count - 1) * hop +
        fft_length] samples with pre-emphasis."""
        if self.host_spectra is not None:
            return self._mel_of(mx.array(self.host_spectra.power(padded, count)))
        return self._mel_of(self._device_power(padded[None], count))[0]

    def normalise(self, mel: mx.array) -> mx.array:
        """Log-mel [T, mels] of a whole utterance, T at least 1, as the model was trained to hear it."""
        return self._normalise(mel[None], np.array([mel.shape[0]], np.int32))[0]

    def _log_mel(
        self,
        samples: Sequence[Float32],
        lengths: NDArray[np.int32],
        powers: Sequence[Float32 | None],
    ) -> mx.array:
        """[B, T, mels], block by block of frames; past an utterance's end is what no sound gives."""
        hop, size, longest = self.config.hop_length, self.config.fft_length, int(lengths.max())
        waves = np.zeros((len(samples), longest * hop + size), np.float32)
        for wave, row, power in zip(waves, samples, powers, strict=True):
            if power is None:
                padded = _pad_samples(row, self.config)[: len(wave)]
                wave[: len(padded)] = padded
        most = FRAMES_PER_LAUNCH if self.host_spectra is None else FRAMES_PER_BLOCK
        step = max(most // len(samples), 1)
        blocks = []
        for first in range(0, longest, step):
            count = min(step, longest - first)
            heard = waves[:, first * hop : (first + count - 1) * hop + size]
            blocks.append(self._mel_of(self._power(heard, first, count, lengths, powers)))
        return mx.concatenate(blocks, axis=1) if len(blocks) > 1 else blocks[0]

    def _power(
        self,
        waves: Float32,
        first: int,
        count: int,
        lengths: NDArray[np.int32],
        powers: Sequence[Float32 | None],
    ) -> mx.array:
        """Squared magnitudes [B, count, fft_length // 2 + 1] of the transforms in `waves`, the first of which
        is an utterance's `first`."""
        if self.host_spectra is None:
            return self._device_power(waves, count)
        squares = np.zeros((len(waves), count, self.config.fft_length // 2 + 1), np.float32)
        for row, (made, frames) in enumerate(zip(powers, (lengths - first).clip(0, count), strict=True)):
            if made is not None:
                squares[row, :frames] = made[first : first + frames]
            elif frames:
                self.host_spectra.write_power(waves[row], squares[row, :frames])
        return mx.array(squares)

    def _device_power(self, waves: Float32, count: int) -> mx.array:
        """As `_power`, computed by the device."""
        size, hop = self.config.fft_length, self.config.hop_length
        block = mx.array(np.ascontiguousarray(waves))
        windows = mx.as_strided(block, (len(waves), count, size), (block.shape[1], hop, 1)) * self.window
        transformed = mx.fft.rfft(windows, axis=-1)
        real, imaginary = mx.real(transformed), mx.imag(transformed)
        return real * real + imaginary * imaginary

    def _mel_of(self, power: mx.array) -> mx.array:
        """Squared magnitudes [..., T, fft_length // 2 + 1] -> log-mel [..., T, mels]."""
        if self.config.mag_power != 2.0:
            power = mx.power(power, self.config.mag_power / 2.0)
        mel = mel_bands(power, self.filters)
        guard = self.config.log_zero_guard_value
        return mx.log(mel + guard if self.config.log_zero_guard_type == "add" else mx.maximum(mel, guard))

    def _normalise(self, mel: mx.array, lengths: NDArray[np.int32]) -> mx.array:
        """Log-mel [B, T, mels] as the model was trained to hear it, zeros past each utterance's frames."""
        frames = mx.array(lengths)
        if self.config.normalize == "per_feature":
            return normalise_frames(mel, frames)
        if self.config.normalize is None:
            return mx.where(mx.arange(mel.shape[1])[None, :, None] < frames[:, None, None], mel, 0.0)
        # All bands alike: the frames of an utterance as one band of as many numbers.
        normalised = normalise_frames(mel.reshape(len(lengths), -1, 1), frames * mel.shape[2])
        return normalised.reshape(mel.shape)


def _pad_samples(samples: Float32, config: PreprocessorConfig) -> Float32:
    """Samples with pre-emphasis, and half a transform of zeros before and behind them."""
    half = config.fft_length // 2
    padded = np.zeros(len(samples) + 2 * half, np.float32)
    padded[half : half + len(samples)] = _pre_emphasis(np.asarray(samples, np.float32), config.preemph)
    return padded


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
