"""A decoder-only language model as the search drives it: an `AttentionHead` whose utterances stand in their
prompts, embedded where a placeholder token is.

Blocks of RMSNorm (Zhang and Sennrich 2019), grouped-query attention (Ainslie et al. 2023) whose queries and
keys are normed by head and rotated (Su et al. 2021, halves), and SwiGLU (Shazeer 2020). A prompt is read once
for all hypotheses; each step is one pass over all live hypotheses. Knows no rule on logits and no search.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.attention.self_attention import self_attention
from kernels.nn.elementwise import silu
from worker.models.attention.causal_state import CausalState, join_states
from worker.models.attention.decoder import pad_rows
from worker.models.attention.layers import (
    Affine,
    Table,
    arrays_of,
    attend_causal,
    is_cpu,
    join_heads,
    log_sum_exp,
    pack_for_frames,
    pack_parts,
)
from worker.models.attention.state import GROWTH
from worker.models.turns import give_way

KERNEL_WIDTH = 32  # the attention of a step takes heads of a multiple of it; narrower ones get zeros


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """x / √(mean(x²) + epsilon) · weight over the last axis, computed in float32."""

    weight: mx.array
    epsilon: float

    def __call__(self, x: mx.array) -> mx.array:
        """Any shape [..., d]."""
        return mx.fast.rms_norm(x, self.weight, self.epsilon)


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """`fused` gives queries [H * D], keys and values [G * D] side by side, H a multiple of G. The scale 1/√D
    stands in `query_norm`'s weight."""

    norm: RmsNorm
    fused: Affine
    query_norm: RmsNorm
    key_norm: RmsNorm
    out: Affine


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """Norm, gate and widening side by side, SiLU of the gate times the widening, narrowing."""

    norm: RmsNorm
    widen: Affine
    narrow: Affine

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., d] -> what is to be added to it."""
        gate, wide = mx.split(self.widen(self.norm(x)), 2, axis=-1)
        return self.narrow(silu(gate) * wide)


@dataclass(frozen=True, slots=True)
class CausalBlock:
    """The weights of a block."""

    attention: GroupedAttention
    mlp: GatedMlp

    def pack(self) -> "CausalBlock":
        """The same with its products as `layers.pack_for_frames` makes them: a prompt is mostly frames."""
        return CausalBlock(pack_parts(self.attention, pack_for_frames), pack_parts(self.mlp, pack_for_frames))


@dataclass(frozen=True, slots=True)
class CausalWeights:
    """A decoder-only model. table: what logits are made with, as `decoder.tokens_last` makes it; embedding:
    [V, d], None where the table's weights are it. heads, groups: of queries, and of keys and values; width:
    of one. theta: the rotation's base."""

    table: Table
    blocks: tuple[CausalBlock, ...]
    norm: RmsNorm
    heads: int
    groups: int
    width: int
    theta: float
    embedding: mx.array | None = None


@dataclass(frozen=True, slots=True)
class CausalPass:
    """What a pass over whole sequences gave: hidden [R, n, d] behind the last norm; keys and values of each
    layer, [R, G, n, D]."""

    hidden: mx.array
    keys: list[mx.array]
    values: list[mx.array]


Rotation = tuple[mx.array, mx.array]


def rotate(x: mx.array, rotation: Rotation) -> mx.array:
    """x [..., heads, D] by cosines and sines [..., 1, D / 2], its first half against its second."""
    cosine, sine = rotation
    first, second = mx.split(x.astype(mx.float32), 2, axis=-1)
    turned = mx.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
    return turned.astype(x.dtype)


class CausalDecoder:
    """The model's weights, and every pass over them. `encoded` is the embedded sound of an utterance, [n, d];
    its prompt has as many placeholders."""

    def __init__(
        self, weights: CausalWeights, dtype: mx.Dtype, *, eos: int, placeholder: int, max_tokens: int
    ) -> None:
        self.weights = weights
        self.dtype, self.eos, self.placeholder, self.max_tokens = dtype, eos, placeholder, max_tokens
        steps = np.arange(0, weights.width, 2, dtype=np.float32) / np.float32(weights.width)
        self._frequencies: NDArray[np.float32] = (1.0 / weights.theta**steps).astype(np.float32)

    @property
    def parameters(self) -> list[mx.array]:
        """Every array, to evaluate or to count."""
        return arrays_of(self.weights)

    def start(self, encoded: Sequence[mx.array], prompts: Sequence[Sequence[int]], beam: int) -> CausalState:
        """As `AttentionHead.start`. A prompt has at least one token."""
        if any(not prompt for prompt in prompts) or len(prompts) != len(encoded):
            raise ValueError("every utterance needs a prompt of at least one token")
        lengths = np.array([len(prompt) - 1 for prompt in prompts], np.int32)
        room = int(lengths.max())
        groups, width = self.weights.groups, -(-self.weights.width // KERNEL_WIDTH) * KERNEL_WIDTH
        shape = (len(prompts), groups, room + GROWTH * beam, width)
        keys, values = ([mx.zeros(shape, self.dtype) for _ in self.weights.blocks] for _ in range(2))
        for rows in _parts(len(prompts)):
            self._read_into(keys, values, rows, encoded[rows], [prompt[:-1] for prompt in prompts[rows]])
            # What was read would stay beside the pool until the first step.
            mx.eval(keys, values)
        owners = mx.zeros((len(prompts), beam, GROWTH), mx.int32)
        return CausalState(keys, values, owners, np.zeros_like(lengths), lengths, room)

    def step(self, tokens: mx.array, state: CausalState) -> tuple[mx.array, CausalState]:
        """As `AttentionHead.step`."""
        count, beam = state.utterances, state.beam
        heads, groups, width = self.weights.heads, self.weights.groups, self.weights.width
        shared, padding = heads // groups, -width % KERNEL_WIDTH
        state.grow(int(state.steps.max()) + 1)
        state.claim()
        # A group of queries with one key and value is as many rows of the kernel's heads.
        places, lengths = (mx.repeat(each, shared, axis=0) for each in (state.places(), state.lengths()))
        columns = state.columns()
        rotation = self._rotation(state.positions[:, None])
        x = self._embed(tokens.reshape(-1)).reshape(count, beam, -1)
        for layer, block in enumerate(self.weights.blocks):
            queries, keys, values = (_pad_width(each, padding) for each in self._project(block, x, rotation))
            state.write(layer, keys.swapaxes(1, 2), values.swapaxes(1, 2), columns)
            rows = queries.reshape(count * beam, groups, shared, -1).swapaxes(1, 2)
            attended = self_attention(
                rows.reshape(count * beam * shared, groups, -1),
                state.keys[layer],
                state.values[layer],
                places,
                lengths,
                scaled=True,
            )
            joined = attended.reshape(count * beam, shared, groups, -1).swapaxes(1, 2)[..., :width]
            x = x + block.attention.out(joined.reshape(count, beam, heads * width))
            x = x + block.mlp(x)
        # An utterance that ended may be carried along for a few steps more; nobody reads what it answers.
        state.steps = np.minimum(state.steps + 1, self.max_tokens - 1 - state.prompts)
        return self.logits(self.weights.norm(x).reshape(count * beam, -1)), state

    def reorder(self, state: CausalState, parents: mx.array) -> CausalState:
        state.reorder(parents)
        return state

    def select(self, state: CausalState, utterances: Sequence[int]) -> CausalState:
        return state.select(utterances)

    def join(self, states: Sequence[CausalState]) -> CausalState:
        return join_states(states)

    def score(
        self,
        encoded: Sequence[mx.array],
        prompts: Sequence[Sequence[int]],
        nbest: Sequence[Sequence[Sequence[int]]],
    ) -> list[NDArray[np.float32]]:
        """As `AttentionHead.score`, sequences without prompt, end included where it is to count."""
        return [
            np.array([row.sum() for row in self.log_probabilities(*each)], np.float32)
            for each in zip(encoded, prompts, nbest, strict=True)
        ]

    def log_probabilities(
        self, encoded: mx.array, prompt: Sequence[int], sequences: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float32]]:
        """The log-probability of each token of each sequence behind the prompt, teacher-forced and without
        rules, float32 [n] each."""
        if not sequences:
            return []
        before = self._read([encoded], [prompt[:-1]])
        rows = mx.array(pad_rows([[prompt[-1], *sequence] for sequence in sequences]))
        behind = self._force(self._embed(rows), len(prompt) - 1, before)
        chosen = []
        for row, sequence in enumerate(sequences):
            logits = self.logits(behind.hidden[row, : len(sequence)])
            own = mx.take_along_axis(logits, rows[row, 1 : len(sequence) + 1, None], axis=-1)
            chosen.append(np.array((own - log_sum_exp(logits))[:, 0]))
        return chosen

    def hidden(self, encoded: mx.array, tokens: Sequence[int]) -> mx.array:
        """What stands behind the last norm at each of an utterance's tokens, [n, d]."""
        return self._force(self._embed_prompt(encoded, tokens)[None]).hidden[0]

    def logits(self, hidden: mx.array) -> mx.array:
        """hidden [..., d] behind the last norm -> float32 [..., V]."""
        table = self.weights.table
        return table(hidden.astype(table.dtype)).astype(mx.float32)

    def _read_into(
        self,
        keys: list[mx.array],
        values: list[mx.array],
        rows: slice,
        encoded: Sequence[mx.array],
        prompts: Sequence[Sequence[int]],
    ) -> None:
        """Reads these rows' prompts, and puts their keys and values at the start of each layer's pool."""
        read = self._read(encoded, prompts)
        for pools, layers in ((keys, read.keys), (values, read.values)):
            for pool, layer in zip(pools, layers, strict=True):
                pool[rows, :, : layer.shape[2], : layer.shape[3]] = layer

    def _read(self, encoded: Sequence[mx.array], prompts: Sequence[Sequence[int]]) -> CausalPass:
        """Prompts side by side, shorter ones padded behind: causal, so that it reaches nothing of theirs."""
        embedded = [self._embed_prompt(*each) for each in zip(encoded, prompts, strict=True)]
        longest = max(len(each) for each in embedded)
        padded = [mx.pad(each, [(0, longest - len(each)), (0, 0)]) for each in embedded]
        return self._force(mx.stack(padded), last=False)

    def _force(
        self, x: mx.array, first: int = 0, before: CausalPass | None = None, *, last: bool = True
    ) -> CausalPass:
        """x [R, n, d] at the positions from `first` on, behind the keys and values of `before`, which has one
        row for all. last: whether the last block's output is wanted, and not its keys and values alone."""
        length = x.shape[1]
        rotation = self._rotation(np.arange(first, first + length, dtype=np.int32))
        all_keys, all_values = [], []
        for layer, block in enumerate(self.weights.blocks):
            if not length:
                shape = (x.shape[0], self.weights.groups, 0, self.weights.width)
                all_keys.append(mx.zeros(shape, x.dtype))
                all_values.append(mx.zeros(shape, x.dtype))
                continue
            queries, keys, values = (each.swapaxes(1, 2) for each in self._project(block, x, rotation))
            all_keys.append(keys)
            all_values.append(values)
            if not last and layer == len(self.weights.blocks) - 1:
                break
            if before is not None and first:
                keys, values = (
                    mx.concatenate([mx.repeat(old, x.shape[0], axis=0), new], axis=2)
                    for old, new in ((before.keys[layer], keys), (before.values[layer], values))
                )
            x = x + block.attention.out(join_heads(attend_causal(queries, keys, values)))
            x = x + block.mlp(x)
            give_way(x)
        return CausalPass(self.weights.norm(x), all_keys, all_values)

    def _project(
        self, block: CausalBlock, x: mx.array, rotation: Rotation
    ) -> tuple[mx.array, mx.array, mx.array]:
        """x [B, N, d] -> queries, scaled, [B, N, H, D], keys and values [B, N, G, D]."""
        attention, width = block.attention, self.weights.width
        own, shared = self.weights.heads * width, self.weights.groups * width
        parts = mx.split(attention.fused(attention.norm(x)), [own, own + shared], axis=-1)
        queries, keys, values = (part.reshape(*x.shape[:2], -1, width) for part in parts)
        return (
            rotate(attention.query_norm(queries), rotation),
            rotate(attention.key_norm(keys), rotation),
            values,
        )

    def _rotation(self, positions: NDArray[np.int32]) -> Rotation:
        """Cosines and sines at positions of any shape, float32 [..., 1, D / 2]."""
        # The reference rounds the angles to float32.
        angles = positions[..., None, None].astype(np.float32) * self._frequencies
        return mx.array(np.cos(angles)), mx.array(np.sin(angles))

    def _embed(self, tokens: mx.array) -> mx.array:
        """tokens [...] -> [..., d]."""
        if self.weights.embedding is not None:
            return self.weights.embedding[tokens]
        rows = self.weights.table.of_outputs(tokens.reshape(-1)).astype(self.dtype)
        return rows.reshape(*tokens.shape, -1)

    def _embed_prompt(self, encoded: mx.array, tokens: Sequence[int]) -> mx.array:
        """A prompt's tokens with the sound in the places of its placeholders, [n, d]."""
        row = np.array(tokens, np.int32)
        places = np.flatnonzero(row == self.placeholder)
        if len(places) != len(encoded):
            raise ValueError(f"{len(places)} places for {len(encoded)} rows of sound")
        x = self._embed(mx.array(row))
        if len(places):
            x[mx.array(places)] = encoded.astype(x.dtype)
        return x


def _parts(count: int) -> list[slice]:
    """What is read together: on a CPU one by one, as the bits of a product depend on its number of rows
    there."""
    return [slice(at, at + 1) for at in range(count)] if is_cpu() else [slice(count)]


def _pad_width(x: mx.array, padding: int) -> mx.array:
    return mx.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, padding)]) if padding else x
