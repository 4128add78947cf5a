"""How many operations and bytes a batch takes, and how fast a chip could be at best (its roofline).

A multiply-add is two operations. An encoder computes scores for 2T - 1 relative positions a query, so
attention counts 4 T d a frame and layer, of which a result takes 3 T d. Norms, activations and softmax count
as bytes, since they are bound by those.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from spool.domain.options import Decoder
from spool.errors import InvalidRequest
from spool.planning.chips import Chip
from spool.planning.language_shape import LanguageShape
from spool.planning.shapes import (
    FEATURE_FRAMES,
    HEAD_WIDTH,
    WINDOW_FRAMES,
    WINDOW_SECONDS,
    BlockShape,
    DecoderShape,
    ModelShape,
    Shape,
    WhisperShape,
)

STEPS_PER_SECOND = 6.5
"""Steps that a TDT search takes for a second of speech; assumed, and nearly tokens plus some blanks."""
TOKENS_PER_SECOND = 3.75
WHISPER_TOKENS_PER_SECOND = 3.0
"""Tokens of an answer for a second of speech; assumed (2.1 in `samples/open`, 3.3 in an audiobook)."""
WHISPER_ANSWERS = 1.2
"""Searches of a window in a job: a second one, with times, only for a reason (67 for 55 windows of a chapter
and of 50 speakers in turns; 249 for 222 of other recordings)."""
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
    """`utterances` of `seconds` each, and how they are searched. `steps_per_second` is for TDT only."""

    seconds: float
    utterances: float = 16
    decoder: Decoder = "greedy"
    beam: int = 4
    steps_per_second: float = STEPS_PER_SECOND
    reads: Reads = "none"

    @property
    def audio_seconds(self) -> float:
        """Seconds of audio of all utterances."""
        return self.seconds * self.utterances

    @property
    def hypotheses(self) -> int:
        """How many hypotheses the search keeps for each utterance."""
        return self.beam if self.decoder == "beam" else 1


@dataclass(frozen=True, slots=True)
class Cost:
    """What one batch takes of a model: operations and bytes, and the steps of its search, which follow one
    another. `dense` operations grow with the frames only; `positions` project relative positions, once for
    the batch; `search_bytes` are the search's weights, read anew at each step."""

    dense: float
    attention: float
    encoder_bytes: float
    search: float
    search_bytes: float
    steps: float = 1.0
    positions: float = 0.0

    @property
    def encoder(self) -> float:
        """Operations of everything but the search."""
        return self.dense + self.attention + self.positions

    @property
    def operations(self) -> float:
        """All operations."""
        return self.encoder + self.search


def cost_of(shape: Shape, batch: Batch) -> Cost:
    """What a batch takes of a model."""
    if isinstance(shape, WhisperShape):
        return _whisper_cost(shape, batch)
    if isinstance(shape, BlockShape):
        return _block_cost(shape, batch)
    if isinstance(shape, LanguageShape):
        return _language_cost(shape, batch)
    frames = count_frames(shape, batch.seconds)
    seen = frames if shape.window is None else min(frames, shape.window)
    # WeNet's attention has no scores by distance, and projects half as many positions.
    products, rows = (4, 2 * frames) if shape.readers is None else (2, frames)
    moved = frames * shape.layers * (VALUES_MOVED * shape.width + SCORES_MOVED * shape.heads * seen)
    steps, search, search_values = _search_cost(shape, batch, frames)
    return Cost(
        dense=batch.utterances * count_dense_operations(shape, batch.seconds),
        attention=batch.utterances * products * 2 * frames * seen * shape.width * shape.layers,
        encoder_bytes=BYTES_PER_VALUE * (shape.encoder_values + batch.utterances * moved),
        search=search,
        search_bytes=BYTES_PER_VALUE * search_values,
        steps=steps,
        # Spool keeps them for utterances of up to 41 s.
        positions=2 * rows * shape.width**2 * shape.layers,
    )


def _search_cost(shape: ModelShape, batch: Batch, frames: int) -> tuple[float, float, float]:
    """Steps of a batch's search, its operations, and the values that it reads."""
    utterances = batch.utterances
    if shape.head == "ctc":
        operations = utterances * frames * 2 * shape.width * shape.outputs + _count_rescoring(
            shape, batch, frames
        )
        return float(frames) if batch.decoder == "beam" else 1.0, operations, shape.width * shape.outputs
    if shape.decoder is not None:
        stamps = STAMPS_PER_SECOND if shape.decoder.stamped else 0.0
        steps = 1.0 + (TOKENS_PER_SECOND + stamps) * batch.seconds
        # Cross keys and values of every utterance, once for all of its hypotheses.
        crossed = utterances * frames * 2 * shape.decoder.layers * shape.decoder.width
        operations = _count_decoding(shape, shape.decoder, batch, frames, steps)
        return steps, operations, steps * (shape.step_values + crossed)
    if shape.head == "rnnt":
        steps = frames + TOKENS_PER_SECOND * batch.seconds
    else:
        steps = batch.steps_per_second * batch.seconds
    project = utterances * frames * 2 * shape.width * shape.joint
    operations = project + steps * utterances * batch.hypotheses * 2 * shape.step_weights
    return steps, operations, steps * shape.step_values


def _count_rescoring(shape: ModelShape, batch: Batch, frames: int) -> float:
    """Operations of the model's own decoders that rescore a beam."""
    readers = shape.readers
    if readers is None or batch.decoder != "beam" or batch.reads == "none":
        return 0.0
    forwards = readers.layers - readers.backwards
    layers = {"left": forwards, "right": readers.backwards, "both": readers.layers}[batch.reads]
    return _count_reading(shape, replace(readers, layers=layers), batch, frames)


def _count_decoding(
    shape: ModelShape, decoder: DecoderShape, batch: Batch, frames: int, steps: float
) -> float:
    """Operations of an attention decoder: cross keys and values once an utterance, its prompt in one pass,
    then a token a step, each with attention to what was written and to all frames."""
    passes = batch.utterances * (steps * batch.hypotheses + decoder.prompt - 1)
    attention = 4 * (frames + decoder.prompt + steps / 2) * decoder.width * decoder.layers
    return _count_memory(shape, decoder, batch, frames) + passes * (2 * shape.step_weights + attention)


def _count_reading(shape: ModelShape, decoder: DecoderShape, batch: Batch, frames: int) -> float:
    """Operations of a decoder that reads the hypotheses of a beam: cross keys and values once an utterance,
    then each token of each hypothesis, all in one pass."""
    tokens = decoder.prompt + TOKENS_PER_SECOND * batch.seconds
    weights = decoder.layers * 14 * decoder.width**2 + shape.labels * decoder.width
    attention = 4 * (frames + tokens / 2) * decoder.width * decoder.layers
    memory = _count_memory(shape, decoder, batch, frames)
    return memory + batch.utterances * batch.beam * tokens * (2 * weights + attention)


def _count_memory(shape: ModelShape, decoder: DecoderShape, batch: Batch, frames: int) -> float:
    """Operations of a decoder's cross keys and values."""
    memory = batch.utterances * frames * 4 * decoder.width**2 * decoder.layers
    if decoder.width != shape.width:
        memory += batch.utterances * frames * 2 * shape.width * decoder.width
    return memory


def _whisper_cost(shape: WhisperShape, batch: Batch) -> Cost:
    """Each window is searched `WHISPER_ANSWERS` times on one encoding; both answers take their steps
    together."""
    windows = batch.utterances * math.ceil(batch.seconds / WINDOW_SECONDS)
    attention = windows * shape.encoder_layers * 4 * WINDOW_FRAMES**2 * shape.width
    values = shape.encoder_layers * (VALUES_MOVED + SCORES_MOVED * WINDOW_FRAMES / HEAD_WIDTH) * shape.width
    moved = windows * (WINDOW_FRAMES * values + shape.cross_values)
    steps = WHISPER_TOKENS_PER_SECOND * batch.seconds
    tokens = WHISPER_ANSWERS * steps * batch.utterances * batch.hypotheses
    crossed = WHISPER_ANSWERS * windows * shape.cross_values
    return Cost(
        dense=windows * (shape.encoder_operations + shape.cross_operations) - attention,
        attention=attention,
        encoder_bytes=BYTES_PER_VALUE * (shape.encoder_values + moved),
        search=tokens * shape.token_operations(steps / 2),
        search_bytes=BYTES_PER_VALUE * steps * (shape.step_values + crossed),
        steps=steps,
    )


def _block_cost(shape: BlockShape, batch: Batch) -> Cost:
    """Scores by distance are computed for twice the block, of which a result takes half."""
    *entering, left = shape.count_frames(batch.seconds)
    seen = [min(frames, shape.block) for frames in entering]
    pairs = sum(frames * near for frames, near in zip(entering, seen, strict=True))
    moved = VALUES_MOVED * shape.width * sum(entering) + SCORES_MOVED * shape.heads * pairs
    head = shape.width * shape.labels
    return Cost(
        dense=batch.utterances * shape.dense_operations(batch.seconds),
        attention=batch.utterances * 8 * pairs * shape.heads * shape.head_width,
        encoder_bytes=BYTES_PER_VALUE * (shape.encoder_values + batch.utterances * moved),
        search=batch.utterances * left * 2 * head,
        search_bytes=BYTES_PER_VALUE * head,
        steps=float(left) if batch.decoder == "beam" else 1.0,
    )


def _language_cost(shape: LanguageShape, batch: Batch) -> Cost:
    """The sound once, its prompt once for all hypotheses, then a token a step."""
    rows, steps = shape.count_rows(batch.seconds), 1.0 + WHISPER_TOKENS_PER_SECOND * batch.seconds
    dense = shape.tower_operations(batch.seconds) + shape.prompt_operations(batch.seconds)
    attention = shape.tower_attention(batch.seconds) + rows * shape.token_attention(rows / 2)
    moved = VALUES_MOVED * rows * (shape.audio_layers * shape.audio_width + shape.layers * shape.width)
    tokens, behind = steps * batch.utterances * batch.hypotheses, rows + steps / 2
    remembered = batch.utterances * (rows + batch.hypotheses * steps / 2) * shape.position_values
    return Cost(
        dense=batch.utterances * dense,
        attention=batch.utterances * attention,
        encoder_bytes=BYTES_PER_VALUE * (shape.encoder_values + batch.utterances * moved),
        search=tokens * (2 * shape.step_weights + shape.token_attention(behind)),
        search_bytes=BYTES_PER_VALUE * steps * (shape.step_values + remembered),
        steps=steps,
    )


def cost_of_reading(shape: Shape, batch: Batch) -> Cost:
    """What a second model takes to read the hypotheses of a batch that a beam has searched. Raises
    InvalidRequest for a model without an attention decoder."""
    cost = cost_of(shape, replace(batch, decoder="greedy"))
    if isinstance(shape, WhisperShape):
        tokens = WHISPER_TOKENS_PER_SECOND * batch.seconds
        search = batch.utterances * batch.beam * tokens * shape.token_operations(tokens / 2)
        windows = batch.utterances * math.ceil(batch.seconds / WINDOW_SECONDS)
        values: float = shape.step_values + windows * shape.cross_values
    elif isinstance(shape, LanguageShape):
        rows, tokens = shape.count_rows(batch.seconds), WHISPER_TOKENS_PER_SECOND * batch.seconds
        operations = 2 * shape.step_weights + shape.token_attention(rows + tokens / 2)
        search, values = batch.utterances * batch.beam * tokens * operations, shape.step_values
    else:
        reader = None if isinstance(shape, BlockShape) else shape.decoder or shape.reads_forwards
        if reader is None:
            raise InvalidRequest(f"{shape.name} has no attention decoder that could rescore.")
        assert isinstance(shape, ModelShape)
        search = _count_reading(shape, reader, batch, count_frames(shape, batch.seconds))
        values = reader.layers * 14 * reader.width**2 + shape.labels * reader.width
    dense, search_bytes = cost.dense + cost.positions, BYTES_PER_VALUE * values
    return Cost(dense, cost.attention, cost.encoder_bytes, search, search_bytes)


def count_frames(shape: ModelShape, seconds: float) -> int:
    """Encoder frames of an utterance. Each stage halves and rounds up; WeNet's leave their edges out."""
    frames = int(seconds * FEATURE_FRAMES)
    for kernel, stride in shape.subsampling:
        frames = _subsample(shape, frames, kernel, stride)
    return max(1, frames)


def _subsample(shape: ModelShape, size: int, kernel: int, stride: int) -> int:
    return -(-size // stride) if shape.readers is None else max(1, (size - kernel) // stride + 1)


def count_dense_operations(shape: ModelShape, seconds: float) -> float:
    """Operations of one utterance without attention, positions and the search."""
    frames, bins, total = int(seconds * FEATURE_FRAMES), shape.mels, 0
    for stage, (kernel, stride) in enumerate(shape.subsampling):
        frames, bins = (_subsample(shape, size, kernel, stride) for size in (frames, bins))
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
    cost = cost_of(shape, batch)
    compute, bandwidth = chip.teraflops * 1e12, chip.gigabytes * 1e9
    seconds = max(cost.encoder / compute, cost.encoder_bytes / bandwidth)
    seconds += max(cost.search / compute, cost.search_bytes / bandwidth)
    return batch.audio_seconds / seconds
