"""The speech detector: Silero VAD 6 at 16 kHz, one probability of speech for every 512 samples (32 ms).

Owns the network and its state between blocks; `worker.speech.spans` interprets the probabilities. Uses numpy
only, so it runs in any process. All layers but one LSTM cell are stateless and are computed for many frames
at once; the cell steps through time for all recordings of a call together. Frames are computed in groups of a
fixed size, the last one padded: the bits of a matrix product depend on its shape, and a stream's
probabilities must not depend on the blocks it arrives in (law 7).

Source: github.com/snakers4/silero-vad, release 6.2.3, the file `silero_vad_16k_op15.onnx` (the release's own
safetensors file holds other weights). Tensors: worker/networks/silero-vad/README.md.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from spool.errors import AudioNotFinite, WeightsMismatch
from worker.audio.resample import SAMPLE_RATE
from worker.speech.weights import NETWORKS, Tensors, read_float32

Floats = NDArray[np.float32]

FRAME = 512
"""Samples a probability stands for."""
FRAME_SECONDS = FRAME / SAMPLE_RATE
WEIGHTS = NETWORKS / "silero-vad" / "model.safetensors"
_CONTEXT = 64
_WINDOW, _HOP, _BINS = 256, 128, 129
_UNITS = 128
_ONE, _HALF = np.float32(1), np.float32(0.5)
_GROUP = 256
"""Frames computed at once (8 s), by which a stream lags behind; smaller groups are slower (LOG.md)."""
_LAST_GROUP = 64
"""Frames of the groups at the end of a recording, where a large one would be mostly padding."""
_SHAPES = {
    "stft_conv.weight": (2 * _BINS, 1, _WINDOW),
    "conv1.weight": (128, _BINS, 3),
    "conv2.weight": (64, 128, 3),
    "conv3.weight": (64, 64, 3),
    "conv4.weight": (128, 64, 3),
    "lstm_cell.weight_ih": (4 * _UNITS, 128),
    "lstm_cell.weight_hh": (4 * _UNITS, _UNITS),
    "final_conv.weight": (1, _UNITS, 1),
}


class SpeechDetector:
    """The stateless network, safe to share. `stream()` follows one recording block by block."""

    def __init__(self, tensors: Tensors) -> None:
        """Raises WeightsMismatch if a tensor is missing or has another shape."""
        for name, shape in _SHAPES.items():
            if name not in tensors or tensors[name].shape != shape:
                raise WeightsMismatch(f"the speech detector needs a tensor {name} of the shape {shape}")
        self._basis = np.ascontiguousarray(tensors["stft_conv.weight"][:, 0].T)
        self._biases = [tensors[f"conv{layer}.bias"] for layer in range(1, 5)]
        self._first = _columns(tensors["conv1.weight"])
        # The padding of the other layers is at known places, so taps that see only zeros are left out: before
        # the first step of the second and third layers, and on both sides of the fourth.
        second, third, fourth = (_columns(tensors[f"conv{layer}.weight"]) for layer in (2, 3, 4))
        self._second = second[len(second) // 3 :], second
        self._third = third[len(third) // 3 :]
        self._fourth = fourth[len(fourth) // 3 : 2 * len(fourth) // 3]
        # sigmoid(v) = 0.5 * tanh(v / 2) + 0.5: with i, f and o halved here, one tanh serves all four gates.
        halves = np.repeat(np.array([0.5, 0.5, 1.0, 0.5], np.float32), _UNITS)
        self._input = tensors["lstm_cell.weight_ih"].T * halves
        self._recurrent = np.ascontiguousarray(tensors["lstm_cell.weight_hh"].T * halves)
        self._bias = (tensors["lstm_cell.bias_ih"] + tensors["lstm_cell.bias_hh"]) * halves
        self._output, self._offset = tensors["final_conv.weight"][0, :, 0], tensors["final_conv.bias"][0]

    @classmethod
    def load(cls, path: Path = WEIGHTS) -> Self:
        """The detector that comes with Spool, or other weights of the same shapes. Raises ModelError."""
        return cls(read_float32(path))

    def probabilities(self, recordings: Sequence[Floats]) -> list[Floats]:
        """`[ceil(n / 512)]` of each recording (float32 `[n]` at 16 kHz, up to 1.0), stepped through together.

        A last frame that is not full is filled with zeros. Raises AudioNotFinite.
        """
        rows = [self._gates(_frames(_finite(samples))) for samples in recordings]
        longest = max((len(row) for row in rows), default=0)
        gates = np.zeros((longest, len(rows), 4 * _UNITS), np.float32)
        for index, row in enumerate(rows):
            gates[: len(row), index] = row
        states, _ = self._steps(gates, np.zeros((2, len(rows), _UNITS), np.float32))
        return [self._heads(states[: len(row), index]) for index, row in enumerate(rows)]

    def stream(self, group: int = _GROUP) -> "DetectorStream":
        """Follows one recording from its start, `group` frames at a time."""
        return DetectorStream(self, group)

    def follow(self, blocks: Iterable[Floats]) -> tuple[Floats, int]:
        """The probabilities of one recording that comes in `blocks` (float32 `[n]`), and its samples."""
        stream = self.stream()
        parts = [stream.push(block) for block in blocks]
        return np.concatenate([*parts, stream.finish()]), stream.samples

    def _gates(self, frames: Floats, size: int = _GROUP) -> Floats:
        """`[N, 512]`: what the LSTM cell's gates get from the input, of frames `[N, 64 + 512]`."""
        gates = np.empty((len(frames), 4 * _UNITS), np.float32)
        at = 0
        while at < len(frames):
            taken = size if at + size <= len(frames) else min(size, _LAST_GROUP)
            group = frames[at : at + taken]
            filled = np.pad(group, ((0, taken - len(group)), (0, 0)))
            gates[at : at + taken] = (self._features(filled) @ self._input + self._bias)[: len(group)]
            at += taken
        return gates

    def _features(self, frames: Floats) -> Floats:
        """`[N, 128]`: magnitudes of four short-time spectra, then four convolutions (strides 1, 2, 2, 1) that
        leave one step."""
        count, steps = len(frames), (_CONTEXT + FRAME + _CONTEXT - _WINDOW) // _HOP + 1
        padded = np.concatenate([frames, frames[:, -2 : -2 - _CONTEXT : -1]], axis=1)
        windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW, axis=1)[:, ::_HOP]
        squares = np.square(windows.reshape(-1, _WINDOW) @ self._basis).reshape(count, steps, -1)
        around = np.zeros((count, steps + 2, _BINS), np.float32)
        np.sqrt(squares[..., :_BINS] + squares[..., _BINS:], out=around[:, 1:-1])
        triples = np.lib.stride_tricks.sliding_window_view(around.reshape(count, -1), 3 * _BINS, axis=1)
        first = _rectify(triples[:, ::_BINS].reshape(-1, 3 * _BINS) @ self._first, self._biases[0])
        ones = first.reshape(count, steps, -1)
        parts = [ones[:, :2].reshape(count, -1), ones[:, 1:].reshape(count, -1)]
        pairs = [part @ weight for part, weight in zip(parts, self._second, strict=True)]
        second = _rectify(np.concatenate(pairs, axis=1), np.tile(self._biases[1], 2))
        third = _rectify(second @ self._third, self._biases[2])
        return _rectify(third @ self._fourth, self._biases[3])

    def _steps(self, gates: Floats, state: Floats) -> tuple[Floats, Floats]:
        """The cell's outputs `[T, B, 128]` and its state `[2, B, 128]` (output, memory) behind them."""
        output, memory = state[0], state[1].copy()
        outputs = np.empty((*gates.shape[:2], _UNITS), np.float32)
        squashed, doubled = np.empty((2, *gates.shape[1:]), np.float32)
        added = np.empty_like(memory)
        for row, out in zip(gates, outputs, strict=True):
            np.matmul(output, self._recurrent, out=squashed)
            np.add(squashed, row, out=squashed)
            np.tanh(squashed, out=squashed)
            np.add(squashed, _ONE, out=doubled)
            np.multiply(doubled[:, 128:256], memory, out=memory)
            np.multiply(doubled[:, :128], squashed[:, 256:384], out=added)
            np.add(memory, added, out=memory)
            np.multiply(memory, _HALF, out=memory)
            np.tanh(memory, out=added)
            np.multiply(doubled[:, 384:], added, out=added)
            np.multiply(added, _HALF, out=out)
            output = out
        return outputs, np.stack([output, memory])

    def _heads(self, states: Floats) -> Floats:
        logits = np.maximum(states, 0) @ self._output + self._offset
        probabilities: Floats = np.float32(0.5) * np.tanh(np.float32(0.5) * logits) + np.float32(0.5)
        return probabilities


class DetectorStream:
    """The detector's state for one recording; `samples` counts the input."""

    def __init__(self, detector: SpeechDetector, group: int = _GROUP) -> None:
        self.samples = 0
        self._detector, self._group = detector, group
        self._held = np.zeros(_CONTEXT, np.float32)
        self._state = np.zeros((2, 1, _UNITS), np.float32)

    def push(self, block: Floats) -> Floats:
        """The probabilities of the groups that `block` (float32 `[n]`) completes. Raises AudioNotFinite."""
        self._held = np.concatenate([self._held, _finite(block, self.samples)])
        self.samples += len(block)
        size = self._group * FRAME
        complete = (len(self._held) - _CONTEXT) // size * size
        return self._take(complete) if complete else np.zeros(0, np.float32)

    def finish(self) -> Floats:
        """The probabilities of the remaining frames, the last one padded with zeros."""
        self._held = np.pad(self._held, (0, -self.samples % FRAME))
        return self._take(len(self._held) - _CONTEXT)

    def _take(self, samples: int) -> Floats:
        held, self._held = self._held[: samples + _CONTEXT], self._held[samples:]
        return self._detect(held)

    def _detect(self, samples: Floats) -> Floats:
        """The probabilities of `samples` `[64 + N * 512]`, of which the first 64 are context."""
        detector = self._detector
        gates = detector._gates(_with_context(samples), self._group)
        states, self._state = detector._steps(gates[:, None], self._state)
        return detector._heads(states[:, 0])


def _frames(samples: Floats) -> Floats:
    """`[N, 64 + 512]` of a whole recording: zeros before the first frame and after the last."""
    missing = -len(samples) % FRAME
    return _with_context(np.pad(samples, (_CONTEXT, missing)))


def _with_context(samples: Floats) -> Floats:
    if len(samples) < _CONTEXT + FRAME:
        return np.zeros((0, _CONTEXT + FRAME), np.float32)
    return np.lib.stride_tricks.sliding_window_view(samples, _CONTEXT + FRAME)[::FRAME]


def _rectify(rows: Floats, bias: Floats) -> Floats:
    """Add the bias and apply ReLU, in place."""
    rows += bias
    np.maximum(rows, 0, out=rows)
    return rows


def _columns(weight: Floats) -> Floats:
    """A convolution's `[O, C, 3]` as a matrix `[3 * C, O]`."""
    return np.ascontiguousarray(weight.transpose(2, 1, 0).reshape(-1, len(weight)))


def _finite(samples: Floats, before: int = 0) -> Floats:
    if samples.ndim != 1:
        raise ValueError(f"the detector takes one channel, float32 [n], not an array of {samples.shape}")
    bad = np.flatnonzero(~np.isfinite(samples))
    if len(bad):
        at = before + int(bad[0])
        raise AudioNotFinite(f"sample {at} ({at / SAMPLE_RATE:.3f} s) is not a finite number")
    return samples.astype(np.float32, copy=False)
