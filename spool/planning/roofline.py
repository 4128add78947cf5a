"""How many operations and bytes a batch takes, and how fast a chip could be at best (its roofline).

A multiply-add is two operations. An encoder computes scores for 2T - 1 relative positions a query, so
attention counts 4 T d a frame and layer, of which a result takes 3 T d. Norms,
activations and softmax count as bytes, since they are bound by those. Times are seconds of audio unless said.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from spool.domain.options import Decoder
from spool.errors import InvalidRequest
from spool.planning.chips import Chip
from spool.planning.model_size import FEATURE_FRAMES, DecoderShape, ModelShape, Shape
from spool.planning.whisper import HEAD_WIDTH, WINDOW_FRAMES, WINDOW_SECONDS, WhisperShape

STEPS_PER_SECOND = 6.5
"""Steps that a TDT search takes for a second of speech; assumed, and nearly tokens plus some blanks."""
TOKENS_PER_SECOND = 3.75
WHISPER_TOKENS_PER_SECOND = 3.0
"""Tokens of an answer for a second of speech; assumed (2.1 in `samples/open`, 3.3 in an audiobook)."""
WHISPER_ANSWERS = 2
"""A job asks each window with times and without them."""
STAMPS_PER_SECOND = 5.0
"""Times that an attention decoder writes for a second of speech of two and a half words; assumed."""
BYTES_PER_VALUE = 2  # bfloat16
VALUES_MOVED = 70
"""Numbers that a layer reads and writes for a frame and unit of width: the inputs and outputs of its matrices
and of what stands between them, each once."""
SCORES_MOVED = 5
"""The same for a pair of frames and a head: scores by position written, shifted, masked and read."""


Reads = Literal["none", "left", "right", "both"]
"""Which of a WeNet model's attention decoders read the hypotheses of its beam."""


@dataclass(frozen=True, slots=True)
class Batch:
    """`utterances` of `seconds` each, and how they are searched. `steps_per_second` is of a TDT."""

    seconds: float
    utterances: float = 16
    decoder: Decoder = "greedy"
    beam: int = 4
    steps_per_second: float = STEPS_PER_SECOND
    reads: Reads = "none"

    @property
    def audio_seconds(self) -> float:
        """Of all utterances."""
        return self.seconds * self.utterances

    @property
    def hypotheses(self) -> int:
        """Kept by the search for each utterance."""
        return self.beam if self.decoder == "beam" else 1


@dataclass(frozen=True)
class Work:
    """What one batch takes, as counts of operations, bytes and steps one after another."""

    shape: ModelShape
    batch: Batch

    @cached_property
    def frames(self) -> int:
        """Encoder frames of one utterance."""
        return encoder_frames(self.shape, self.batch.seconds)

    @cached_property
    def dense(self) -> float:
        """Operations that grow with the frames alone: subsampling, feed-forward, projections,
        convolutions."""
        return self.batch.utterances * dense_operations(self.shape, self.batch.seconds)

    @cached_property
    def attention(self) -> float:
        """Operations between pairs of frames."""
        seen = self.frames if self.shape.window is None else min(self.frames, self.shape.window)
        products = 4 if self.shape.readers is None else 2  # WeNet's has no scores by distance
        each = products * 2 * self.frames * seen * self.shape.width * self.shape.layers
        return self.batch.utterances * each

    @cached_property
    def positions(self) -> float:
        """Operations of projecting relative positions once for the batch. Spool keeps them for utterances of
        up to 41 s."""
        rows = (2 if self.shape.readers is None else 1) * self.frames
        return 2 * rows * self.shape.width**2 * self.shape.layers

    @cached_property
    def encoder_bytes(self) -> float:
        """The weights once, and each frame's values."""
        shape = self.shape
        seen = self.frames if shape.window is None else min(self.frames, shape.window)
        values = VALUES_MOVED * shape.width + SCORES_MOVED * shape.heads * seen
        moved = self.batch.utterances * self.frames * shape.layers * values
        return BYTES_PER_VALUE * (shape.encoder_weights + moved)

    @cached_property
    def steps(self) -> float:
        """Steps of the search, one after another; utterances of a batch take them together."""
        if self.shape.head == "ctc":
            return float(self.frames) if self.batch.decoder == "beam" else 1.0
        if self.shape.head == "rnnt":
            return self.frames + TOKENS_PER_SECOND * self.batch.seconds
        if self.shape.decoder is not None:
            stamps = STAMPS_PER_SECOND if self.shape.decoder.stamped else 0.0
            return 1.0 + (TOKENS_PER_SECOND + stamps) * self.batch.seconds
        return self.batch.steps_per_second * self.batch.seconds

    @cached_property
    def rows(self) -> float:
        """Steps of single hypotheses."""
        return self.steps * self.batch.utterances * self.batch.hypotheses

    @cached_property
    def search(self) -> float:
        """Operations of the search."""
        shape, utterances = self.shape, self.batch.utterances
        if shape.head == "ctc":
            return utterances * self.frames * 2 * shape.width * shape.outputs + self._reading()
        if shape.decoder is not None:
            return self._decoding(shape.decoder)
        project = utterances * self.frames * 2 * shape.width * shape.joint
        return project + self.rows * 2 * shape.step_weights

    @cached_property
    def search_bytes(self) -> float:
        """The search's weights, read anew at each step."""
        if self.shape.head == "ctc":
            return BYTES_PER_VALUE * self.shape.width * self.shape.outputs
        values = float(self.shape.step_weights)
        if self.shape.decoder is not None:
            # Cross keys and values of every utterance, once for all of its hypotheses.
            decoder = self.shape.decoder
            values += self.batch.utterances * self.frames * 2 * decoder.layers * decoder.width
        return self.steps * BYTES_PER_VALUE * values

    def _reading(self) -> float:
        """Operations of the decoders that rescore a beam."""
        readers, batch = self.shape.readers, self.batch
        if readers is None or batch.decoder != "beam" or batch.reads == "none":
            return 0.0
        forwards = readers.layers - readers.backwards
        layers = {"left": forwards, "right": readers.backwards, "both": readers.layers}[batch.reads]
        return reading_operations(self.shape, replace(readers, layers=layers), batch, self.frames)

    def _decoding(self, decoder: DecoderShape) -> float:
        """Operations of an attention decoder: cross keys and values once an utterance, its prompt in one
        pass, then a token a step, each with attention to what was written and to all frames."""
        square = decoder.width**2
        memory = self.batch.utterances * self.frames * 2 * square * 2 * decoder.layers
        if decoder.width != self.shape.width:
            memory += self.batch.utterances * self.frames * 2 * self.shape.width * decoder.width
        passes = self.rows + self.batch.utterances * (decoder.prompt - 1)
        heard = self.frames + decoder.prompt + self.steps / 2
        attention = 2 * 2 * heard * decoder.width * decoder.layers
        return memory + passes * (2 * self.shape.step_weights + attention)

    @property
    def operations(self) -> float:
        """All of them."""
        return self.dense + self.attention + self.positions + self.search

    @property
    def operations_per_second(self) -> float:
        """Of audio."""
        return self.operations / self.batch.audio_seconds


def reading_operations(shape: ModelShape, decoder: DecoderShape, batch: Batch, frames: int) -> float:
    """Operations of a decoder that reads the hypotheses of a beam: cross keys and values once an utterance,
    then each token of each hypothesis, all in one pass."""
    square, tokens = decoder.width**2, decoder.prompt + TOKENS_PER_SECOND * batch.seconds
    memory = batch.utterances * frames * 4 * square * decoder.layers
    if decoder.width != shape.width:
        memory += batch.utterances * frames * 2 * shape.width * decoder.width
    weights = decoder.layers * 14 * square + shape.labels * decoder.width
    attention = 4 * (frames + tokens / 2) * decoder.width * decoder.layers
    return memory + batch.utterances * batch.beam * tokens * (2 * weights + attention)


@dataclass(frozen=True)
class WhisperWork:
    """What one batch of a Whisper takes: as `Work`. A window costs the same whatever is in it, and is asked
    `WHISPER_ANSWERS` times on one encoding."""

    shape: WhisperShape
    batch: Batch
    positions: float = 0.0

    @cached_property
    def windows(self) -> float:
        """Of all utterances."""
        return self.batch.utterances * math.ceil(self.batch.seconds / WINDOW_SECONDS)

    @cached_property
    def attention(self) -> float:
        """Operations between pairs of frames."""
        shape = self.shape
        return self.windows * shape.encoder_layers * 4 * WINDOW_FRAMES**2 * shape.width

    @cached_property
    def dense(self) -> float:
        """The encoder's other operations, and cross keys and values."""
        shape = self.shape
        return self.windows * (shape.encoder_operations + shape.cross_operations) - self.attention

    @cached_property
    def encoder_bytes(self) -> float:
        """The weights once, each frame's values, and cross keys and values written."""
        shape = self.shape
        values = (
            shape.encoder_layers * (VALUES_MOVED + SCORES_MOVED * WINDOW_FRAMES / HEAD_WIDTH) * shape.width
        )
        moved = self.windows * (WINDOW_FRAMES * values + shape.cross_values)
        return BYTES_PER_VALUE * (shape.encoder_weights + moved)

    @cached_property
    def steps(self) -> float:
        """Steps of the search, one after another: tokens of one answer; both answers take them together."""
        return WHISPER_TOKENS_PER_SECOND * self.batch.seconds

    @cached_property
    def rows(self) -> float:
        """Tokens of single hypotheses."""
        return WHISPER_ANSWERS * self.steps * self.batch.utterances * self.batch.hypotheses

    @cached_property
    def search(self) -> float:
        """Operations of the decoder."""
        return self.rows * self.shape.token_operations(self.steps / 2)

    @cached_property
    def search_bytes(self) -> float:
        """The decoder's weights at each step, and each window's cross keys and values for each answer, which
        its hypotheses share."""
        crossed = WHISPER_ANSWERS * self.windows * self.shape.cross_values
        return BYTES_PER_VALUE * self.steps * (self.shape.step_weights + crossed)

    @property
    def operations(self) -> float:
        """All of them."""
        return self.dense + self.attention + self.search

    @property
    def operations_per_second(self) -> float:
        """Of audio."""
        return self.operations / self.batch.audio_seconds


@dataclass(frozen=True, slots=True)
class Reading:
    """What a second model that reads the hypotheses of a batch takes: operations of its encoder and between
    its frames, those of its decoder, and bytes of each."""

    dense: float
    attention: float
    decoder: float
    encoder_bytes: float
    decoder_bytes: float


def reading_of(shape: Shape, batch: Batch) -> Reading:
    """Of a batch that a beam of another model has searched. Raises InvalidRequest for a model without
    attention decoder."""
    work, heard = work_of(shape, replace(batch, decoder="greedy")), batch.utterances * batch.beam
    if isinstance(work, WhisperWork):
        tokens = WHISPER_TOKENS_PER_SECOND * batch.seconds
        decoder = heard * tokens * work.shape.token_operations(tokens / 2)
        values = work.shape.step_weights + work.windows * work.shape.cross_values
    else:
        reader = work.shape.decoder or work.shape.reads_forwards
        if reader is None:
            raise InvalidRequest(f"{shape.name} has no attention decoder that could rescore.")
        decoder = reading_operations(work.shape, reader, batch, work.frames)
        values = reader.layers * 14 * reader.width**2 + work.shape.labels * reader.width
    dense = work.dense + work.positions
    return Reading(dense, work.attention, decoder, work.encoder_bytes, BYTES_PER_VALUE * values)


def work_of(shape: Shape, batch: Batch) -> Work | WhisperWork:
    """What a batch takes of a model of either kind."""
    return WhisperWork(shape, batch) if isinstance(shape, WhisperShape) else Work(shape, batch)


def encoder_frames(shape: ModelShape, seconds: float) -> int:
    """Encoder frames of an utterance; each stage halves and rounds up, or (WeNet's) leaves its edges out."""
    frames = int(seconds * FEATURE_FRAMES)
    for kernel, stride in shape.subsampling:
        frames = _subsampled(shape, frames, kernel, stride)
    return max(1, frames)


def _subsampled(shape: ModelShape, size: int, kernel: int, stride: int) -> int:
    return -(-size // stride) if shape.readers is None else max(1, (size - kernel) // stride + 1)


def dense_operations(shape: ModelShape, seconds: float) -> float:
    """Of one utterance: everything but attention, positions and the search."""
    frames, bins, total = int(seconds * FEATURE_FRAMES), shape.mels, 0
    for stage, (kernel, stride) in enumerate(shape.subsampling):
        frames, bins = (_subsampled(shape, size, kernel, stride) for size in (frames, bins))
        inputs = shape.channels if stage and shape.readers is not None else 1
        total += 2 * kernel**2 * frames * bins * shape.channels * inputs
        if stage and shape.readers is None:  # depthwise, then pointwise
            total += 2 * frames * bins * shape.channels**2
    frames = max(1, frames)
    total += 2 * frames * shape.channels * bins * shape.width
    layer = (4 * shape.expansion + 4 + 3) * shape.width**2 + shape.kernel * shape.width
    return float(total + shape.layers * 2 * frames * layer)


def cap(shape: Shape, chip: Chip, batch: Batch) -> float:
    """Seconds of audio a second that the chip could do if it did nothing but compute at its peak, or move
    bytes where that takes longer. What is measured is a share of this."""
    work = work_of(shape, batch)
    encoder = work.dense + work.attention + work.positions
    compute, bandwidth = chip.teraflops * 1e12, chip.gigabytes * 1e9
    seconds = max(encoder / compute, work.encoder_bytes / bandwidth)
    seconds += max(work.search / compute, work.search_bytes / bandwidth)
    return batch.audio_seconds / seconds
