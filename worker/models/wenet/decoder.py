"""The attention decoders of U2 and U2++: one reads from left to right, the other from right to left."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.attention.blocks import AttentionNames, BlockNames, MlpNames, Tensors
from worker.models.attention.decoder import AttentionDecoder, DecoderWeights, tokens_last
from worker.models.attention.state import EncodedWindow
from worker.models.attention.token_tree import score_together
from worker.models.conformer.attention import sinusoids
from worker.models.heads.ctc import CtcHead
from worker.models.heads.transducer import Transducer
from worker.models.weights import Shape, linear_shapes, norm_shapes
from worker.models.wenet.config import DecoderSizes, WenetConfig

MOST_TOKENS = 5000  # rows of WeNet's own table of positions
_LAYERS = ("linear_q", "linear_k", "linear_v", "linear_out")
BLOCK = BlockNames(
    AttentionNames("norm1", *(f"self_attn.{layer}" for layer in _LAYERS)),
    AttentionNames("norm2", *(f"src_attn.{layer}" for layer in _LAYERS)),
    MlpNames("norm3", "feed_forward.w_1", "feed_forward.w_2", "relu"),
)


def shapes_of(config: WenetConfig) -> dict[str, Shape]:
    """The tensors of both decoders, by their names in the file."""
    width, vocabulary = config.encoder.d_model, config.vocabulary
    shapes: dict[str, Shape] = {}
    for sizes in config.decoders:
        shapes[f"{sizes.name}.embed.0.weight"] = (vocabulary, width)
        for layer in range(sizes.layers):
            shapes |= BLOCK.shapes(f"{sizes.name}.decoders.{layer}", width, sizes.inner)
        shapes |= norm_shapes(f"{sizes.name}.after_norm", width)
        shapes |= linear_shapes(f"{sizes.name}.output_layer", vocabulary, width)
    return shapes


def decoder_of(
    sizes: DecoderSizes, config: WenetConfig, tensors: dict[str, mx.array], dtype: mx.Dtype
) -> "WenetDecoder":
    """One decoder of the tensors of `shapes_of`, float32, which are taken out of it."""
    source, width, name = Tensors(tensors, dtype), config.encoder.d_model, sizes.name
    output = source.linear(f"{name}.output_layer")
    weights = DecoderWeights(
        table=tokens_last(output.weight, output.bias),
        positions=sinusoids(mx.arange(MOST_TOKENS), width).astype(dtype),
        blocks=tuple(
            source.block(f"{name}.decoders.{layer}", BLOCK, sizes.heads) for layer in range(sizes.layers)
        ),
        norm=source.norm(f"{name}.after_norm"),
        heads=sizes.heads,
        embedding=(tensors.pop(f"{name}.embed.0.weight") * float(width**0.5)).astype(dtype),
    )
    return WenetDecoder(weights, dtype, config.eos)


class WenetDecoder(AttentionDecoder):
    """A decoder that reads in one direction."""

    def score(
        self,
        encoded: Sequence[EncodedWindow],
        prompts: Sequence[Sequence[int]],
        nbest: Sequence[Sequence[Sequence[int]]],
    ) -> list[NDArray[np.float32]]:
        return score_together(self, encoded, prompts, nbest)


class WenetHead:
    """CTC, attention and perhaps a transducer side by side: what rescoring and the attention beam drive.
    right: None in U2."""

    def __init__(
        self,
        ctc: CtcHead,
        left: WenetDecoder,
        right: WenetDecoder | None,
        sos: int,
        transducer: Transducer | None = None,
    ) -> None:
        self.ctc, self.left, self.right, self.sos, self.transducer = ctc, left, right, sos, transducer

    def windows(self, frames: mx.array, lengths: NDArray[np.int32]) -> list[EncodedWindow]:
        """As the left decoder has them."""
        return self.left.windows(frames, lengths)

    def score(
        self,
        frames: mx.array,
        lengths: NDArray[np.int32],
        nbest: Sequence[Sequence[Sequence[int]]],
        *,
        reverse: bool = False,
    ) -> list[NDArray[np.float32]]:
        """For each utterance of frames [B, T, d] the log-probability of each of its token sequences and of
        their end, by the decoder that reads from the left or, with `reverse`, from the right."""
        decoder = self.right if reverse else self.left
        if decoder is None:
            raise ValueError("the model has no decoder that reads from right to left")
        read = [
            [[*(reversed(tokens) if reverse else tokens), decoder.eos] for tokens in each] for each in nbest
        ]
        # No frames, nothing to attend to: such an utterance has one hypothesis, which needs no score.
        heard = [row for row, each in enumerate(nbest) if each and lengths[row]]
        scores = [np.zeros(len(each), np.float32) for each in nbest]
        windows = decoder.windows(frames, lengths)
        asked = [windows[row] for row in heard], [[self.sos]] * len(heard), [read[row] for row in heard]
        log_probs = decoder.score(*asked)
        for row, each in zip(heard, log_probs, strict=True):
            scores[row] = each
        return scores
