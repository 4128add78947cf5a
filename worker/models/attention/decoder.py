"""A transformer decoder as the search drives it: an `AttentionHead` (worker/models/base_attention.py).

One step is one pass over all live hypotheses of all utterances, each at its own position. A teacher-forced
pass serves prompts, scores and what families make of attention. Knows no rule on logits and no search.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.attention.cross_attention import TILE, tile_keys
from kernels.attention.self_attention import self_attention
from kernels.nn.row_products import RowProducts
from kernels.runtime.device import buffer_of, fresh_array
from worker.models.attention.layers import (
    CrossAttention,
    Linear,
    Mlp,
    Norm,
    Product,
    SelfAttention,
    Table,
    arrays_of,
    attend_frames,
    attend_table,
    is_cpu,
    join_heads,
    log_sum_exp,
    pack,
    pack_for_frames,
    pack_parts,
    split_heads,
)
from worker.models.attention.state import (
    DecoderState,
    EncodedBatch,
    EncodedWindow,
    Memory,
    empty_state,
    join_states,
)


@dataclass(frozen=True, slots=True)
class Block:
    """The weights of a decoder block."""

    attention: SelfAttention
    cross: CrossAttention
    mlp: Mlp

    def pack(self) -> "Block":
        """The same with its products as `layers.pack` makes them."""
        memory = self.cross.memory
        cross = replace(self.cross, memory=pack_for_frames(memory) if isinstance(memory, Table) else memory)
        return Block(pack_parts(self.attention), pack_parts(cross), pack_parts(self.mlp))


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """A decoder of pre-norm blocks.

    table: what logits are made with, as `tokens_last` makes it. positions: [most tokens, d].
    embedding: [V, d], None where the table's weights are it; embedding_norm: behind token and position, None
    for none. heads: of every attention; head_width: of each, 0 for its share of d.
    """

    table: Table
    positions: mx.array
    blocks: tuple[Block, ...]
    norm: Norm
    heads: int
    embedding: mx.array | None = None
    embedding_norm: Norm | None = None
    head_width: int = 0


def tokens_last(weight: mx.array, bias: mx.array | None = None) -> Product:
    """A product with weight [V, d] to many outputs: tokens lie last, as MLX's product with it is then a fifth
    faster on a CPU."""
    last = mx.contiguous(weight.T).T
    return Product(last) if bias is None else Linear(last, bias)


@dataclass(frozen=True, slots=True)
class ForcedPass:
    """What a teacher-forced pass gave: hidden [R, n, d] behind the last norm, states of it behind each layer;
    keys and values of each layer [R, H, n, D]; products: of the cross attention of each layer that was asked
    for, float32 [U, H, Q, T], and the queries that they were made with, [U, H, Q, D]."""

    hidden: mx.array
    states: list[mx.array]
    keys: list[mx.array]
    values: list[mx.array]
    products: dict[int, mx.array]
    queries: dict[int, mx.array]


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Rows of tokens that are trees: depths int32 [R, n], a token's position in its sequence; behind bool
    [R, n, n], whether token i sees token j: itself and those on its way from the root."""

    depths: NDArray[np.int32]
    behind: NDArray[np.bool_]


class AttentionDecoder:
    """The decoder's weights, and every pass over them. A family adds how it aligns text.

    alignment_heads: (layer, head) whose cross attention follows time.
    """

    def __init__(
        self,
        weights: DecoderWeights,
        dtype: mx.Dtype,
        eos: int,
        alignment_heads: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.weights = replace(weights, table=pack(weights.table))
        self.dtype, self.eos = dtype, eos
        self.blocks = self.weights.blocks
        self._head_width = weights.head_width or int(weights.positions.shape[1]) // weights.heads
        self.alignment_heads = tuple(sorted(alignment_heads))
        self._heads_of = {
            layer: mx.array([head for at, head in self.alignment_heads if at == layer])
            for layer, _ in self.alignment_heads
        }

    @property
    def max_tokens(self) -> int:
        return int(self.weights.positions.shape[0])

    @property
    def parameters(self) -> list[mx.array]:
        """Every array, to evaluate or to count."""
        return arrays_of(self.weights)

    @property
    def bytes_a_token(self) -> int:
        """Of the keys and values of a token, or of an encoder frame."""
        return 2 * len(self.blocks) * self.weights.heads * self._head_width * self.dtype.size

    def cross_memory(self, frames: mx.array) -> tuple[tuple[mx.array, mx.array], ...]:
        """Cross keys in `tile_keys` and values [B, H, T, D] of each layer, from frames [B, T, d]."""
        pairs, heads = [], self.weights.heads
        for block in self.blocks:
            keys, values = mx.split(block.cross.memory(frames), 2, axis=-1)
            pairs.append(
                (
                    tile_keys(split_heads(keys, heads)),
                    mx.contiguous(split_heads(values, heads)),
                )
            )
        return tuple(pairs)

    def gather(
        self, frames: Iterator[mx.array], lengths: NDArray[np.int32], context: NDArray[np.int32]
    ) -> EncodedBatch:
        """Utterances that are encoded one after another, each [1, T, d] of its own T in `context`, as one
        batch: a step attends to it in one launch. Each is written in its place, and nothing is held twice."""
        count, heads, length = len(lengths), self.weights.heads, int(context.max())
        first = next(frames)
        width = int(first.shape[2])
        tiles, depth = -(-length // TILE), width // heads
        # Behind a shorter context there are zeros, not what the memory held before.
        room = mx.zeros if (context < length).any() else fresh_array
        everything = room((count, length, width), first.dtype)
        cross = tuple(
            (
                mx.zeros((count, heads, tiles, depth, TILE), first.dtype),
                room((count, heads, length, depth), first.dtype),
            )
            for _ in self.blocks
        )
        mx.eval(everything, cross)
        for row, own in enumerate(chain([first], frames)):
            mx.eval(own)
            used = own.shape[1]
            buffer_of(everything)[row, :used] = buffer_of(own)[0]
            for block, (keys, values) in zip(self.blocks, cross, strict=True):
                memory = block.cross.memory(own)
                mx.eval(memory)
                both = buffer_of(memory)[0].reshape(used, 2, heads, depth)
                for at in range(0, used, TILE):
                    part = both[at : at + TILE, 0]
                    buffer_of(keys)[row, :, at // TILE, :, : len(part)] = part.transpose(1, 2, 0)
                buffer_of(values)[row, :, :used] = both[:, 1].swapaxes(0, 1)
        return EncodedBatch(everything, lengths, cross, context)

    def start(
        self, encoded: Sequence[EncodedWindow], prompts: Sequence[Sequence[int]], beam: int
    ) -> DecoderState:
        """As `AttentionHead.start`. A prompt has at least one token."""
        if any(not prompt for prompt in prompts) or len(prompts) != len(encoded):
            raise ValueError("every utterance needs a prompt of at least one token")
        lengths = np.array([len(prompt) - 1 for prompt in prompts], np.int32)
        heads = (self.weights.heads, self._head_width)
        state = empty_state(encoded, beam, len(self.blocks), heads, int(lengths.max()) + 1, self.dtype)
        state.steps = lengths
        if self.keeps_trail(beam):
            shape = (len(encoded), len(self.alignment_heads), state.capacity, heads[1])
            state.queries = mx.zeros(shape, self.dtype)
        if lengths.max() > 0:
            # Columns behind a shorter prompt hold the padding's, until the utterance writes there itself.
            kept = list(self._heads_of)
            forced = self.force(state.memory, pad_rows([prompt[:-1] for prompt in prompts]), keep=kept)
            filled = int(lengths.max()) * beam
            if state.queries is not None:
                state.queries[:, :, :filled] = self._of_alignment(forced.queries)
            for layer, (keys, values) in enumerate(zip(forced.keys, forced.values, strict=True)):
                state.keys[layer][:, :, :filled:beam] = keys
                state.values[layer][:, :, :filled:beam] = values
        return state

    def step(self, tokens: mx.array, state: DecoderState) -> tuple[mx.array, DecoderState]:
        count, beam, heads = state.utterances, state.beam, self.weights.heads
        state.grow(int(state.steps.max()) + 1)
        state.claim()
        places, lengths, columns = state.places(), state.lengths(), state.columns()
        positions = self.weights.positions[mx.array(state.steps)][:, None]
        x = self._embed(tokens.reshape(-1)).reshape(count, beam, -1) + positions
        x = self._normalise(x)
        heard: dict[int, mx.array] = {}
        for layer, block in enumerate(self.blocks):
            fused = block.attention.fused(block.attention.norm(x))
            queries, keys, values = mx.split(fused, 3, axis=-1)
            state.write(layer, split_heads(keys, heads), split_heads(values, heads), columns)
            attended = self_attention(
                queries.reshape(count * beam, heads, -1),
                state.keys[layer],
                state.values[layer],
                places,
                lengths,
                scaled=True,
            )
            x = x + block.attention.out(attended.reshape(count, beam, -1))
            queries = block.cross.query(block.cross.norm(x)).reshape(count * beam, heads, -1)
            heard[layer] = queries
            attended = state.memory.attend(queries, layer, beam)
            x = x + block.cross.out(attended.reshape(count, beam, -1))
            x = x + block.mlp(x)
        if state.queries is not None:
            state.keep_queries(self._of_alignment(heard))
        # An utterance that ended may be carried along for a few steps more; nobody reads what it answers.
        state.steps = np.minimum(state.steps + 1, self.max_tokens - 1)
        return self.logits(self.weights.norm(x).reshape(count * beam, -1)), state

    def keeps_trail(self, beam: int) -> bool:
        """As `TrailHead.keeps_trail`: where heads align, of one hypothesis, and of products whose bits depend
        on no other row."""
        return beam == 1 and bool(self.alignment_heads) and isinstance(self.weights.table, RowProducts)

    def trail(self, state: DecoderState, utterance: int, tokens: int) -> mx.array:
        """As `TrailHead.trail`: the queries of the alignment heads, [heads, tokens, D]."""
        assert state.queries is not None
        return state.queries[utterance, :, :tokens]

    def _of_alignment(self, queries: dict[int, mx.array]) -> mx.array:
        """Of each layer's [B, H, …] the alignment heads, [B, heads, …] in their order."""
        return mx.concatenate([queries[layer][:, heads] for layer, heads in self._heads_of.items()], axis=1)

    def project(self, frames: mx.array) -> mx.array:
        """Encoder frames [B, T, d_model] as the decoder attends to them, [B, T, d]."""
        return frames

    def windows(
        self, frames: mx.array, lengths: NDArray[np.int32], *, masked: bool = False
    ) -> list[EncodedWindow]:
        """Frames [B, T, d_model] as utterances with cross keys and values. A CPU takes each by itself, for
        the bits of a product depend on its number of rows there. masked: an utterance of no frames attends
        to none; else a CPU lets it attend to one of zeros."""
        batches = [(frames, lengths)]
        if is_cpu():
            batches = [
                (frames[row : row + 1, : max(length, 1)], lengths[row : row + 1])
                for row, length in enumerate(lengths.tolist())
            ]
        windows: list[EncodedWindow] = []
        for own, counts in batches:
            attended = self.project(own)
            context = counts if masked or not is_cpu() else None
            batch = EncodedBatch(attended, counts, self.cross_memory(attended), context)
            windows += [EncodedWindow(batch, row) for row in range(len(counts))]
        return windows

    def reorder(self, state: DecoderState, parents: mx.array) -> DecoderState:
        state.reorder(parents)
        return state

    def select(self, state: DecoderState, utterances: Sequence[int]) -> DecoderState:
        return state.select(utterances)

    def join(self, states: Sequence[DecoderState]) -> DecoderState:
        return join_states(states)

    def logits_after(self, encoded: Sequence[EncodedWindow], prompts: Sequence[Sequence[int]]) -> mx.array:
        """Logits float32 [B, V] of what follows each prompt."""
        forced = self.force(Memory.of(encoded), pad_rows(prompts))
        last = mx.array([len(prompt) - 1 for prompt in prompts])
        return self.logits(forced.hidden[mx.arange(len(prompts)), last])

    def score(
        self,
        encoded: Sequence[EncodedWindow],
        prompts: Sequence[Sequence[int]],
        nbest: Sequence[Sequence[Sequence[int]]],
    ) -> list[NDArray[np.float32]]:
        """As `AttentionHead.score`, sequences without prompt, end included where it is to count."""
        scores: list[NDArray[np.float32]] = []
        for window, prompt, sequences in zip(encoded, prompts, nbest, strict=True):
            if not sequences:
                scores.append(np.zeros(0, np.float32))
                continue
            chosen = self.log_probabilities(window, prompt, sequences)
            lengths = mx.array([len(sequence) for sequence in sequences])[:, None]
            inside = mx.arange(chosen.shape[1]) < lengths
            scores.append(np.array(mx.sum(mx.where(inside, chosen, 0.0), axis=1)))
        return scores

    def log_probabilities(
        self, window: EncodedWindow, prompt: Sequence[int], sequences: Sequence[Sequence[int]]
    ) -> mx.array:
        """The log-probability of each token of each sequence behind the prompt, teacher-forced and without
        rules, float32 [sequences, longest]; behind a sequence's end anything finite."""
        rows = pad_rows([[*prompt, *sequence] for sequence in sequences])
        forced = self.force(Memory.of([window]), rows)
        logits = self.logits(forced.hidden[:, len(prompt) - 1 : -1])
        chosen = mx.take_along_axis(logits, mx.array(rows[:, len(prompt) :, None]), axis=-1)
        return (chosen - log_sum_exp(logits))[..., 0]

    def logits(self, hidden: mx.array) -> mx.array:
        """hidden [..., d] behind the last norm -> float32 [..., V]."""
        table = self.weights.table
        return table(hidden.astype(table.dtype)).astype(mx.float32)

    def force(
        self,
        memory: Memory,
        tokens: NDArray[np.int32],
        keep: Sequence[int] = (),
        tree: TokenTree | None = None,
    ) -> ForcedPass:
        """tokens int32 [R, n], R a multiple of the memory's utterances, rows of an utterance side by side.
        keep: layers whose products of the cross attention are wanted. tree: how the tokens of a row follow
        one another; by default in their order."""
        count, length = tokens.shape
        utterances = sum(map(len, memory.rows))
        heads, width = self.weights.heads, int(self.weights.positions.shape[1])
        x = self._embed(mx.array(tokens.reshape(-1))).reshape(count, length, width)
        if tree is None:
            x = self._normalise(x + self.weights.positions[:length])
            mask = mx.triu(mx.full((length, length), -mx.inf, mx.float32), 1)
        else:
            x = self._normalise(x + self.weights.positions[mx.array(tree.depths)])
            mask = mx.where(mx.array(tree.behind), 0.0, -mx.inf)[:, None].astype(mx.float32)
        states, all_keys, all_values, kept, heard = [], [], [], {}, {}
        for layer, block in enumerate(self.blocks):
            fused = block.attention.fused(block.attention.norm(x))
            queries, keys, values = (split_heads(part, heads) for part in mx.split(fused, 3, axis=-1))
            all_keys.append(keys)
            all_values.append(values)
            x = x + block.attention.out(join_heads(attend_table(queries, keys, values, mask)))
            shared = x.reshape(utterances, -1, width)
            added, products, asked = self._cross(block.cross, shared, memory, layer)
            x = x + added.reshape(x.shape)
            x = x + block.mlp(x)
            states.append(x)
            if layer in keep:
                kept[layer], heard[layer] = products, asked
        return ForcedPass(self.weights.norm(x), states, all_keys, all_values, kept, heard)

    def _cross(
        self, cross: CrossAttention, x: mx.array, memory: Memory, layer: int
    ) -> tuple[mx.array, mx.array, mx.array]:
        """x [U, Q, d] -> what is to be added, the products [U, H, Q, T], and the queries [U, H, Q, D]."""
        queries = split_heads(cross.query(cross.norm(x)), self.weights.heads)
        pairs = [memory.cross(group, layer) for group in range(len(memory.rows))]
        output, products = attend_frames(queries, pairs)
        return cross.out(join_heads(output)), products, queries

    def _embed(self, tokens: mx.array) -> mx.array:
        """tokens [N] -> [N, d]."""
        if self.weights.embedding is not None:
            return self.weights.embedding[tokens]
        return self.weights.table.of_outputs(tokens).astype(self.dtype)

    def _normalise(self, x: mx.array) -> mx.array:
        norm = self.weights.embedding_norm
        return x if norm is None else norm(x)


def pad_rows(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """Rows of unlike lengths as int32 [R, longest], zeros behind; causal, so they reach nothing before
    them."""
    filled = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for index, row in enumerate(rows):
        filled[index, : len(row)] = row
    return filled
