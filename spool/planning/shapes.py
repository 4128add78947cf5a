"""What models cost that depends on their sizes: weights that are read, and operations.

A multiply-add is two operations. Reads no file; `spool.planning.model_size` finds a model's shape.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from spool.planning.language_shape import LanguageShape
from spool.planning.weight_bits import WHOLE, Weighed

FEATURE_FRAMES = 100  # a second
WINDOW_SECONDS = 30.0
"""A Whisper's window; it costs the same whatever is in it."""
WINDOW_FRAMES = 1500
FEATURE_ROWS = 3000
HEAD_WIDTH = 64

Head = Literal["tdt", "rnnt", "ctc", "attention"]


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """An attention decoder: its layers of a width, four times as wide inside, and the tokens that go before
    an answer. `stamped`: it writes a time at both ends of each word. `backwards`: how many of the layers are
    of a decoder that reads from right to left."""

    layers: int
    width: int
    prompt: int = 9
    stamped: bool = False
    backwards: int = 0


@dataclass(frozen=True, slots=True)
class ModelShape(Weighed):
    """A FastConformer and its heads, all sizes in numbers of values.

    `channels` are those of the subsampling convolutions, `window` how many frames local attention sees (None:
    all). `hidden`, `lstm_layers` and `joint` are zero on a model that has a CTC head alone; `durations` is
    how many a TDT head knows, 0 on RNNT. `labels` is without blank. `decoder`: of a model that has an
    attention decoder in place of a head. `readers`: of WeNet's models the decoders that rescore, both
    directions' layers together; their subsampling has whole convolutions without padding, and their
    attention knows a key's position, not its distance.
    """

    name: str
    mels: int
    layers: int
    width: int
    expansion: int = 4
    kernel: int = 9
    factor: int = 8
    channels: int = 256
    heads: int = 8
    window: int | None = None
    hidden: int = 640
    lstm_layers: int = 1
    joint: int = 640
    labels: int = 1024
    durations: int = 5
    decoder: DecoderShape | None = None
    readers: DecoderShape | None = None
    bits: int = WHOLE

    @property
    def subsampling(self) -> tuple[tuple[int, int], ...]:
        """Kernel and stride of the convolutions before the encoder."""
        if self.readers is not None and self.factor == 6:
            return (3, 2), (5, 3)
        return ((3, 2),) * (self.factor.bit_length() - 1)

    @property
    def head(self) -> Head:
        """Which search it allows first."""
        if self.decoder is not None:
            return "attention"
        if not self.hidden:
            return "ctc"
        return "tdt" if self.durations else "rnnt"

    @property
    def reads_forwards(self) -> DecoderShape | None:
        """Of `readers` the decoder that reads from left to right, which is what rescores another model."""
        readers = self.readers
        return None if readers is None else replace(readers, layers=readers.layers - readers.backwards)

    @property
    def encoder_weights(self) -> int:
        """Matrices of the encoder's layers, without what is negligible beside them."""
        square = self.width * self.width
        return self.layers * (4 * self.expansion + 4 + 1 + 3) * square

    @property
    def step_kept(self) -> int:
        return self.step_weights if self.decoder is None else self.labels * self.decoder.width

    @property
    def step_weights(self) -> int:
        """What one step of a search reads: of a transducer the LSTM, and the joint but for the encoder's
        side; of an attention decoder all but the projections of encoder frames."""
        if self.decoder is not None:
            # Four matrices of self attention, two of cross attention, eight of the feed-forward.
            return self.decoder.layers * 14 * self.decoder.width**2 + self.labels * self.decoder.width
        return self.lstm_layers * 8 * self.hidden**2 + self.joint * (self.hidden + self.outputs)

    @property
    def outputs(self) -> int:
        """Logits: labels, blank and durations."""
        return self.labels + 1 + self.durations


@dataclass(frozen=True, slots=True)
class WhisperShape(Weighed):
    """Sizes in numbers of values; a head is 64 wide."""

    name: str
    mels: int
    width: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int = 51865
    bits: int = WHOLE

    @property
    def job_share(self) -> float:
        """0.63 of the engine's speed with full windows (ops/bench/LOG.md, 2026-11-28), where 0.83 of a window
        is sound in pieces of 25 s, of 0.95 there: the rest is what a plan does not count already."""
        return 0.72

    @property
    def encoder_weights(self) -> int:
        """Matrices of the encoder and the convolutions."""
        return self.encoder_layers * 12 * self.width**2 + 3 * self.width * (self.mels + self.width)

    @property
    def step_kept(self) -> int:
        return self.vocabulary * self.width

    @property
    def step_weights(self) -> int:
        """What one step of the decoder reads: its layers' matrices and the token table."""
        return self.decoder_layers * 14 * self.width**2 + self.vocabulary * self.width

    @property
    def cross_values(self) -> int:
        """Numbers of a window's cross keys and values."""
        return 2 * self.decoder_layers * WINDOW_FRAMES * self.width

    @property
    def encoder_operations(self) -> float:
        """Of one window: L (24 d² T + 4 T² d), the convolutions before them."""
        d, t = self.width, WINDOW_FRAMES
        convolutions = 6 * FEATURE_ROWS * self.mels * d + 6 * t * d * d
        return float(self.encoder_layers * (24 * d * d * t + 4 * t * t * d) + convolutions)

    @property
    def cross_operations(self) -> float:
        """Of one window's cross keys and values."""
        return float(4 * self.decoder_layers * self.width**2 * WINDOW_FRAMES)

    def token_operations(self, position: float) -> float:
        """Of one token of one hypothesis behind `position` others."""
        attention = 4 * (WINDOW_FRAMES + position) * self.width
        return self.decoder_layers * (28 * self.width**2 + attention) + 2.0 * self.vocabulary * self.width


@dataclass(frozen=True, slots=True)
class BlockShape(Weighed):
    """A Conformer under a CTC head that attends within blocks of `block` frames, and whose `pooled` layers
    halve the frames (Granite Speech 5), all sizes in numbers of values.

    `inner` is the width of the feed-forwards, `expansion` how many times as wide as the frames the
    convolution is inside. `labels` counts blank. The middle layer's frames are labelled too, and what comes
    of it is fed back.
    """

    name: str
    mels: int = 80
    layers: int = 16
    width: int = 1024
    inner: int = 4096
    heads: int = 8
    head_width: int = 128
    block: int = 128
    kernel: int = 7
    expansion: int = 2
    pooled: tuple[int, ...] = (0, 1)
    labels: int = 16_384
    bits: int = WHOLE

    @property
    def encoder_kept(self) -> int:
        return 2 * self.labels * self.width

    @property
    def encoder_weights(self) -> int:
        """Matrices of the encoder; its output layer, which is the head, among them."""
        attention = 4 * self.heads * self.head_width
        layer = self.width * (4 * self.inner + attention + 3 * self.expansion * self.width)
        return self.layers * layer + 4 * self.mels * self.width + 2 * self.labels * self.width

    def count_frames(self, seconds: float) -> tuple[int, ...]:
        """Frames that enter each layer, and those that leave the last."""
        frames = [math.ceil(int(seconds * FEATURE_FRAMES) / 2)]
        for layer in range(self.layers):
            frames.append(frames[-1] // 2 if layer in self.pooled else frames[-1])
        return tuple(max(1, count) for count in frames)

    def dense_operations(self, seconds: float) -> float:
        """Of one utterance without attention and the search. A layer that halves does so within its
        convolution."""
        frames, square = self.count_frames(seconds), self.width * self.width
        before = (
            self.width * (2 * self.inner + 4 * self.heads * self.head_width) + 2 * self.expansion * square
        )
        behind = self.expansion * self.width * (self.width + self.kernel) + 2 * self.width * self.inner
        total = (
            4 * self.mels * self.width * frames[0] + 2 * self.labels * self.width * frames[self.layers // 2]
        )
        for entering, leaving in pairwise(frames):
            total += entering * before + leaving * behind
        return 2.0 * total


Shape = ModelShape | WhisperShape | BlockShape | LanguageShape
