"""How many floating-point operations a FastConformer encoder needs for an utterance; a multiply-add is two.

`needed` counts what the result takes: every product over valid frames, attention over T x T, convolutions.
What an engine does beside it counts for nothing: padding, positions beyond those T x T (an engine that shifts
instead of choosing computes 2T - 1 a query), the projection of positions (once a length), norms, activations,
softmax, copies.
"""

from dataclasses import dataclass

from worker.models.conformer.config import EncoderConfig


@dataclass(frozen=True)
class Operations:
    """Of one utterance, by part."""

    feed_forward: int
    projections: int
    attention: int
    convolution: int
    subsampling: int

    @property
    def total(self) -> int:
        return self.feed_forward + self.projections + self.attention + self.convolution + self.subsampling


def needed(config: EncoderConfig, features: int) -> Operations:
    """For that many feature frames (100 a second) through subsampling and every layer."""
    frames, subsampling = _subsampling(config, features)
    width, layers, seen = config.d_model, config.n_layers, frames
    square = 2 * frames * width * width
    if config.is_local:
        left, right = config.att_context_size
        seen = min(frames, left + right + 1)
    return Operations(
        feed_forward=layers * 4 * config.ff_expansion_factor * square,
        projections=layers * 4 * square,
        # Content, position, values.
        attention=layers * 3 * 2 * frames * seen * width,
        convolution=layers * (3 * square + 2 * config.conv_kernel_size * frames * width),
        subsampling=subsampling,
    )


def _subsampling(config: EncoderConfig, features: int) -> tuple[int, int]:
    """Encoder frames, and operations."""
    channels = config.subsampling_conv_channels if config.subsampling_conv_channels > 0 else config.d_model
    frames, bins = features, config.feat_in
    total = 0
    for stage in range(config.subsampling_factor.bit_length() - 1):
        frames, bins = (frames + 1) // 2, (bins + 1) // 2
        total += 2 * 9 * frames * bins * channels
        if stage:
            total += 2 * frames * bins * channels * channels
    return frames, total + 2 * frames * channels * bins * config.d_model
