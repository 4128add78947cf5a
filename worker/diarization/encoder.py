"""The voice encoder (GE2E): 1.6 s of speech to a non-negative unit vector of 256 that identifies a voice.

Owns mel features and the network; `worker.diarization.windows` chooses the windows. Many windows are encoded
at once. Paper: Wan et al. 2018, "Generalized end-to-end loss for speaker verification"; source of weights and
features: Resemblyzer 0.1.4 (worker/networks/voice-encoder/README.md).
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernels.nn.lstm_windows import Layer, LstmWindows, can_run
from kernels.runtime.build_cpu import BuildFailed
from spool.errors import WeightsMismatch
from worker.audio.resample import SAMPLE_RATE
from worker.speech.weights import NETWORKS, Tensors, read_float32

Floats = NDArray[np.float32]
Array = Any
"""Of MLX or of numpy: both have the operators that the network needs."""

HOP = 160
"""Samples per mel frame: 10 ms at 16 kHz."""
SIZE = 256
"""The dimension of voice prints."""
MELS = 40
WEIGHTS = NETWORKS / "voice-encoder" / "model.safetensors"
_log = logging.getLogger(__name__)
_WINDOW = 400
_LAYERS = 3
_SHAPES = {
    "linear.weight": (SIZE, SIZE),
    "linear.bias": (SIZE,),
    **{f"lstm.weight_ih_l{n}": (4 * SIZE, SIZE if n else MELS) for n in range(_LAYERS)},
    **{f"lstm.weight_hh_l{n}": (4 * SIZE, SIZE) for n in range(_LAYERS)},
    **{f"lstm.bias_{part}_l{n}": (4 * SIZE,) for part in ("ih", "hh") for n in range(_LAYERS)},
}


def _mel_filters() -> Floats:
    """`[40, 201]`: triangles of area one on Slaney's mel scale from 0 to 8 kHz, as librosa's default."""
    scale = np.linspace(0, 15 + 27 * np.log(SAMPLE_RATE / 2000) / np.log(6.4), MELS + 2)
    edges = np.where(scale < 15, scale * 200 / 3, 1000 * np.exp((scale - 15) * np.log(6.4) / 27))[:, None]
    bins = np.fft.rfftfreq(_WINDOW, 1 / SAMPLE_RATE)
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    area = 2 / (edges[2:] - edges[:-2])
    filters: Floats = (np.maximum(0, np.minimum(rising, falling)) * area).astype(np.float32)
    return filters


_FILTERS = np.ascontiguousarray(_mel_filters().T)


def _bases() -> tuple[Floats, Floats]:
    """`[200, 201]` and `[199, 201]`: cosines and sines of a frame under its Hann window. The window is
    symmetrical about sample 200 and 0 at sample 0, so samples as far before as behind it share a row, the
    cosines those of their sum and the sines those of their difference."""
    at, bins = np.arange(1, _WINDOW // 2 + 1)[:, None], np.arange(_WINDOW // 2 + 1)
    hann, angles = 0.5 - 0.5 * np.cos(2 * np.pi * at / _WINDOW), 2 * np.pi / _WINDOW * (at * bins)
    return (hann * np.cos(angles)).astype(np.float32), (hann * np.sin(angles))[:-1].astype(np.float32)


_COSINES, _SINES = _bases()
_FRAMES_AT_ONCE = 512


def mel_power(samples: Floats) -> Floats:
    """`[T, 40]` mel power, no logarithm, of float32 `[n]`: frame t is centred on sample `200 + 160 * t`.

    T is the number of whole frames of 400 samples; the caller pads.
    """
    frames = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::HOP]
    parts = [_power(frames[at : at + _FRAMES_AT_ONCE]) for at in range(0, len(frames), _FRAMES_AT_ONCE)]
    return np.concatenate(parts) @ _FILTERS


def _power(frames: Floats) -> Floats:
    """`[T, 201]` power of frames `[T, 400]`. By products, which here are faster than a Fourier transform."""
    half = _WINDOW // 2
    before, behind = frames[:, 1:half], frames[:, :half:-1]
    sums = np.concatenate([before + behind, frames[:, half : half + 1]], axis=1)
    power = sums @ _COSINES
    power *= power
    sines = (before - behind) @ _SINES
    sines *= sines
    power += sines
    return power


def _fastest() -> ModuleType:
    import mlx.core as mx  # not above: the process that follows recordings has no MLX

    return mx if mx.default_device().type == mx.DeviceType.gpu else np


def _compile_network(layers: Sequence[Layer]) -> LstmWindows | None:
    """The layers compiled for this CPU; None if kernels are not compiled, or this one cannot be."""
    from kernels.runtime.device import compiles_for_cpu, read_backend  # MLX again

    if not (compiles_for_cpu() and can_run()):
        return None
    try:
        return LstmWindows.pack(layers)
    except BuildFailed as failure:
        if read_backend():
            raise
        _log.warning("voices are encoded in numpy, at half the speed: %s", failure)
        return None


class VoiceEncoder:
    """The network; safe to share.

    On a GPU it runs in MLX; on an x86-64 CPU as a function compiled for it; on other CPUs in numpy, whose
    tanh is some 50 times faster than MLX's there.
    """

    def __init__(self, tensors: Tensors, library: ModuleType | None = None) -> None:
        """`library` is `mlx.core` or `numpy`, by default the faster one. Raises WeightsMismatch if a tensor
        is missing or has another shape."""
        for name, shape in _SHAPES.items():
            if name not in tensors or tensors[name].shape != shape:
                raise WeightsMismatch(f"the voice encoder needs a tensor {name} of the shape {shape}")
        self._library: Any = library or _fastest()
        layers = [
            (
                tensors[f"lstm.weight_ih_l{n}"],
                tensors[f"lstm.weight_hh_l{n}"],
                tensors[f"lstm.bias_ih_l{n}"] + tensors[f"lstm.bias_hh_l{n}"],
            )
            for n in range(_LAYERS)
        ]
        self._kernel = None if library is not None or self._library is not np else _compile_network(layers)
        # sigmoid(v) = 0.5 * tanh(v / 2) + 0.5: with i, f and o halved here, one tanh serves all four gates.
        halves = np.repeat(np.array([0.5, 0.5, 1.0, 0.5], np.float32), SIZE)[:, None]
        self._layers = [
            tuple(self._library.array(array * halves) for array in (entering, recurrent, bias[:, None]))
            for entering, recurrent, bias in layers
        ]
        self._weight, self._bias = tensors["linear.weight"].T, tensors["linear.bias"]

    @classmethod
    def load(cls, path: Path = WEIGHTS) -> Self:
        """The encoder that comes with Spool, or other weights of the same shapes. Raises ModelError."""
        return cls(read_float32(path))

    def encode(self, windows: Sequence[Floats]) -> Floats:
        """Voice prints `[N, 256]` of windows of mel power `[T, 40]` each, which may differ in length."""
        last = self._last_outputs(windows) if self._kernel is None else self._kernel.last_outputs(windows)
        raw = np.maximum(last @ self._weight + self._bias, 0)
        prints: Floats = raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), np.float32(1e-12))
        return prints

    def _last_outputs(self, windows: Sequence[Floats]) -> Floats:
        """`[N, 256]`: the last layer's output after each window, computed by the library."""
        order = sorted(range(len(windows)), key=lambda index: -len(windows[index]))
        counts = np.array([len(windows[index]) for index in order])
        padded = np.zeros((counts[0], MELS, len(order)), np.float32)
        for column, index in enumerate(order):
            padded[: counts[column], :, column] = windows[index]
        # Windows are columns, so that each gate is one contiguous block of rows. The longest come first, so
        # that the unfinished ones are a block of columns.
        steps, last = self._library.array(padded), len(order)
        states = [(self._library.zeros((SIZE, last), self._library.float32),) * 2] * _LAYERS
        raw = np.zeros((last, SIZE), np.float32)
        for step in range(int(counts[0])):
            active = int((counts > step).sum())
            if active < last:
                raw[active:last] = np.array(states[-1][0][:, active:]).T
                states = [(output[:, :active], memory[:, :active]) for output, memory in states]
                last = active
            rows = steps[step, :, :active]
            for layer, weights in enumerate(self._layers):
                states[layer] = self._step(rows, *states[layer], *weights)
                rows = states[layer][0]
        raw[:last] = np.array(states[-1][0]).T
        outputs = np.empty_like(raw)
        outputs[order] = raw
        return outputs

    def _step(
        self, rows: Array, output: Array, memory: Array, weight: Array, recurrent: Array, bias: Array
    ) -> tuple[Array, Array]:
        """Output and memory `[256, N]` of an LSTM cell after the input `rows` `[D, N]`; gates i, f, g, o."""
        tanh = self._library.tanh
        gates = weight @ rows
        gates += recurrent @ output
        gates += bias
        gates = tanh(gates)
        kept = (gates[SIZE : 2 * SIZE] + 1) * memory
        memory = 0.5 * (kept + (gates[:SIZE] + 1) * gates[2 * SIZE : 3 * SIZE])
        return 0.5 * (gates[3 * SIZE :] + 1) * tanh(memory), memory
