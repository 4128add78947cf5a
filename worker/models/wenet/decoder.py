"""The attention decoders of U2 and U2++: one reads from left to right, the other from right to left.

Sequences to be scored share what they begin with: the decoder goes once over a tree of their tokens, whose
nodes see what lies between them and the root.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.attention.blocks import AttentionNames, BlockNames, MlpNames, Tensors
from worker.models.attention.decoder import AttentionDecoder, DecoderWeights, TokenTree, tokens_last
from worker.models.attention.layers import is_cpu, log_sum_exp
from worker.models.attention.state import EncodedBatch, EncodedWindow, Memory
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
    sizes: DecoderSizes, config: WenetConfig, tensors: Mapping[str, mx.array], dtype: mx.Dtype
) -> "WenetDecoder":
    """One decoder of the tensors of `shapes_of`, float32."""
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
        embedding=(tensors[f"{name}.embed.0.weight"] * float(width**0.5)).astype(dtype),
    )
    return WenetDecoder(weights, dtype, config.eos)


@dataclass(frozen=True, slots=True)
class _Tree:
    """The tokens of an utterance's sequences, each prefix once. tokens, depths: of the nodes, the prompt's
    first. parents: their nodes before. steps: of each sequence the nodes that it goes through and the tokens
    that it reads there."""

    tokens: list[int]
    depths: list[int]
    parents: list[int]
    steps: list[tuple[list[int], list[int]]]


class WenetDecoder(AttentionDecoder):
    """A decoder that reads in one direction."""

    def windows(self, frames: mx.array, lengths: NDArray[np.int32]) -> list[EncodedWindow]:
        """Frames [B, T, d] as this decoder attends to them. A CPU takes each utterance by itself."""
        if not is_cpu():
            batch = EncodedBatch(frames, lengths, self.cross_memory(frames), masked=True)
            return [EncodedWindow(batch, row) for row in range(len(lengths))]
        windows = []
        for row, length in enumerate(lengths.tolist()):
            own = frames[row : row + 1, : max(length, 1)]  # of no frames one of zeros is attended to
            alone = EncodedBatch(own, lengths[row : row + 1], self.cross_memory(own))
            windows.append(EncodedWindow(alone, 0))
        return windows

    def score(
        self,
        encoded: Sequence[EncodedWindow],
        prompts: Sequence[Sequence[int]],
        nbest: Sequence[Sequence[Sequence[int]]],
        *,
        reverse: bool = False,
    ) -> list[NDArray[np.float32]]:
        """As `AttentionHead.score`; `reverse` is the caller's other decoder."""
        if reverse:
            raise ValueError("this decoder reads in one direction; the other is a decoder of its own")
        trees = [_tree(*each) for each in zip(prompts, nbest, strict=True)]
        size = 1 if is_cpu() else len(trees)
        scores: list[NDArray[np.float32]] = []
        for first in range(0, len(trees), max(size, 1)):
            scores += self._score_tokens(encoded[first : first + size], trees[first : first + size])
        return scores

    def _score_tokens(
        self, encoded: Sequence[EncodedWindow], trees: Sequence[_Tree]
    ) -> list[NDArray[np.float32]]:
        longest = max(len(tree.tokens) for tree in trees)
        tokens = np.zeros((len(trees), longest), np.int32)
        depths = np.zeros_like(tokens)
        behind = np.zeros((len(trees), longest, longest), bool)
        behind[:, np.arange(longest), np.arange(longest)] = True
        for row, tree in enumerate(trees):
            tokens[row, : len(tree.tokens)], depths[row, : len(tree.tokens)] = tree.tokens, tree.depths
            for node, parent in enumerate(tree.parents):
                if parent >= 0:
                    behind[row, node] |= behind[row, parent]
        forced = self.force(Memory.of(encoded), tokens, tree=TokenTree(depths, behind))
        logits = self.logits(forced.hidden)
        sums = log_sum_exp(logits)[..., 0]
        scores = []
        for row, tree in enumerate(trees):
            nodes = mx.array([node for path, _ in tree.steps for node in path], mx.int32)
            read = mx.array([token for _, spoken in tree.steps for token in spoken], mx.int32)
            each = np.array(logits[row, nodes, read] - sums[row, nodes]) if nodes.size else np.zeros(0)
            ends = np.cumsum([0, *(len(path) for path, _ in tree.steps)])
            sequences = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
            scores.append(np.array([each[a:b].sum(dtype=np.float64) for a, b in sequences], np.float32))
        return scores


def _tree(prompt: Sequence[int], sequences: Sequence[Sequence[int]]) -> _Tree:
    tokens, depths = list(prompt), list(range(len(prompt)))
    parents = [depth - 1 for depth in depths]
    children: dict[tuple[int, int], int] = {}
    steps = []
    for sequence in sequences:
        node, path = len(prompt) - 1, []
        for at, token in enumerate(sequence):
            path.append(node)
            if at + 1 == len(sequence):
                break  # what the last token leads to is not asked
            if (node, token) not in children:
                children[node, token] = len(tokens)
                tokens.append(token)
                depths.append(depths[node] + 1)
                parents.append(node)
            node = children[node, token]
        steps.append((path, list(sequence)))
    return _Tree(tokens, depths, parents, steps)


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
