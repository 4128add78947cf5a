"""Whisper's decoder as the search drives it: an `AttentionHead` (worker/models/base_attention.py).

One step is one pass over all live hypotheses of all utterances, each at its own position. A teacher-forced
pass serves prompts, scores and word times. Knows no rule on logits and no search.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.attention.cross_attention import tiled_keys
from kernels.attention.self_attention import self_attention
from worker.models.base_attention import TokenTimes
from worker.models.whisper.alignment import FRAMES_MIN, time_tokens
from worker.models.whisper.config import SpecialTokens, WhisperDims
from worker.models.whisper.layers import (
    CrossAttention,
    Mlp,
    SelfAttention,
    Tensors,
    attend_frames,
    attend_table,
    join_heads,
    log_sum_exp,
    split_heads,
)
from worker.models.whisper.state import (
    EncodedWindow,
    Memory,
    WhisperState,
    empty_state,
    join_states,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A decoder block."""

    attention: SelfAttention
    cross: CrossAttention
    mlp: Mlp


@dataclass(frozen=True, slots=True)
class ForcedPass:
    """What a teacher-forced pass gave: hidden [R, n, d] behind the last norm; keys and values of each layer
    [R, H, n, 64]; products float32 [R, heads, n, 1500] of the alignment heads, where they were asked for."""

    hidden: mx.array
    keys: list[mx.array]
    values: list[mx.array]
    products: mx.array | None


class WhisperHead:
    """The decoder's weights, and every pass over them."""

    def __init__(
        self,
        dims: WhisperDims,
        tensors: Mapping[str, mx.array],
        dtype: mx.Dtype,
        alignment_heads: Sequence[tuple[int, int]],
    ) -> None:
        self.dims, self.dtype = dims, dtype
        self.ids = SpecialTokens(dims.n_vocab)
        self.alignment_heads = tuple(alignment_heads)
        source = Tensors(tensors, dtype)
        # Tokens last: the product with it, the largest of a step, is then a fifth faster on a CPU.
        self.tokens = mx.contiguous(source.array("decoder.token_embedding.weight").T)
        self.positions = source.array("decoder.positional_embedding")
        self.blocks = [
            Block(source.self_attention(name), source.cross_attention(name), source.mlp(name))
            for name in (f"decoder.blocks.{layer}" for layer in range(dims.n_text_layer))
        ]
        self.norm = source.norm("decoder.ln")

    @property
    def eos(self) -> int:
        """The end of text."""
        return self.ids.eot

    @property
    def max_tokens(self) -> int:
        """448."""
        return self.dims.n_text_ctx

    @property
    def parameters(self) -> list[mx.array]:
        """Every array, to evaluate or to count."""
        arrays = [self.tokens, self.positions, self.norm.weight, self.norm.bias]
        for block in self.blocks:
            linears = [block.attention.fused, block.attention.out, block.cross.query, block.cross.memory]
            for linear in (*linears, block.cross.out, block.mlp.narrow):
                arrays += [linear.weight, linear.bias]
            for norm in (block.attention.norm, block.cross.norm, block.mlp.norm):
                arrays += [norm.weight, norm.bias]
            arrays += [block.mlp.widen, block.mlp.widen_bias]
        return arrays

    def cross_memory(self, frames: mx.array) -> tuple[tuple[mx.array, mx.array], ...]:
        """Cross keys (`tiled_keys`) and values [B, H, 1500, 64] of each layer, from frames [B, 1500, d]."""
        pairs = []
        for block in self.blocks:
            keys, values = mx.split(block.cross.memory(frames), 2, axis=-1)
            heads = self.dims.n_text_head
            pairs.append((tiled_keys(split_heads(keys, heads)), mx.contiguous(split_heads(values, heads))))
        return tuple(pairs)

    def start(
        self, encoded: Sequence[EncodedWindow], prompts: Sequence[Sequence[int]], beam: int
    ) -> WhisperState:
        """As `AttentionHead.start`. A prompt has at least one token."""
        if any(not prompt for prompt in prompts) or len(prompts) != len(encoded):
            raise ValueError("every utterance needs a prompt of at least one token")
        lengths = np.array([len(prompt) - 1 for prompt in prompts], np.int32)
        state = empty_state(
            encoded, beam, len(self.blocks), self.dims.n_text_head, int(lengths.max()) + 1, self.dtype
        )
        state.positions = lengths
        if lengths.max() > 0:
            # Columns behind a shorter prompt hold the padding's, until the utterance writes there itself.
            forced = self._force(state.memory, _padded([prompt[:-1] for prompt in prompts]))
            filled = int(lengths.max()) * beam
            for layer, (keys, values) in enumerate(zip(forced.keys, forced.values, strict=True)):
                state.keys[layer][:, :, :filled:beam] = keys
                state.values[layer][:, :, :filled:beam] = values
        return state

    def step(self, tokens: mx.array, state: WhisperState) -> tuple[mx.array, WhisperState]:
        """As `AttentionHead.step`."""
        count, beam, heads = state.utterances, state.beam, self.dims.n_text_head
        state.grow(int(state.positions.max()) + 1)
        state.claim()
        places, lengths, columns = state.places(), state.lengths(), state.columns()
        x = self.tokens[:, tokens.reshape(-1)].T.reshape(count, beam, -1)
        x = x + self.positions[mx.array(state.positions)][:, None]
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
            x = x + block.attention.out(attended.reshape(x.shape))
            queries = block.cross.query(block.cross.norm(x)).reshape(count * beam, heads, -1)
            attended = state.memory.attend(queries, layer, beam)
            x = x + block.cross.out(attended.reshape(x.shape))
            x = x + block.mlp(x)
        # An utterance that ended may be carried along for a few steps more; nobody reads what it answers.
        state.positions = np.minimum(state.positions + 1, self.max_tokens - 1)
        return self._logits(self.norm(x).reshape(count * beam, -1)), state

    def reorder(self, state: WhisperState, parents: mx.array) -> WhisperState:
        """As `AttentionHead.reorder`: the parent table's rows move, nothing else."""
        state.owners = mx.take_along_axis(state.owners, parents[:, :, None], axis=1)
        return state

    def select(self, state: WhisperState, utterances: Sequence[int]) -> WhisperState:
        """As `AttentionHead.select`."""
        return state.select(utterances)

    def join(self, states: Sequence[WhisperState]) -> WhisperState:
        """As `AttentionHead.join`."""
        return join_states(states)

    def logits_after(self, encoded: Sequence[EncodedWindow], prompts: Sequence[Sequence[int]]) -> mx.array:
        """Logits float32 [B, V] of what follows each prompt; for a prompt that ends with sot: of the language
        and of whether anything is spoken."""
        forced = self._force(Memory.of(encoded), _padded(prompts))
        last = mx.array([len(prompt) - 1 for prompt in prompts])
        return self._logits(forced.hidden[mx.arange(len(prompts)), last])

    def score(
        self,
        encoded: Sequence[EncodedWindow],
        prompts: Sequence[Sequence[int]],
        nbest: Sequence[Sequence[Sequence[int]]],
        *,
        reverse: bool = False,
    ) -> list[NDArray[np.float32]]:
        """As `AttentionHead.score`, sequences without prompt, end included where it is to count."""
        if reverse:
            raise ValueError("Whisper's decoder reads from left to right alone")
        scores: list[NDArray[np.float32]] = []
        for window, prompt, sequences in zip(encoded, prompts, nbest, strict=True):
            if not sequences:
                scores.append(np.zeros(0, np.float32))
                continue
            rows = _padded([[*prompt, *sequence] for sequence in sequences])
            forced = self._force(Memory.of([window]), rows)
            logits = self._logits(forced.hidden[:, len(prompt) - 1 : -1])
            logits = logits - log_sum_exp(logits)
            chosen = mx.take_along_axis(logits, mx.array(rows[:, len(prompt) :, None]), axis=-1)[..., 0]
            lengths = mx.array([len(sequence) for sequence in sequences])[:, None]
            inside = mx.arange(chosen.shape[1]) < lengths
            scores.append(np.array(mx.sum(mx.where(inside, chosen, 0.0), axis=1)))
        return scores

    def align(
        self,
        encoded: Sequence[EncodedWindow],
        tokens: Sequence[Sequence[int]],
        languages: Sequence[str | None] | None = None,
        task: str = "transcribe",
    ) -> list[TokenTimes | None]:
        """As `AttentionHead.align`; tokens are text alone, `languages` those of the prompts (default
        English)."""
        spoken = languages or [None] * len(encoded)
        prompts = [self.ids.prompt(language or "en", task, timestamps=False) for language in spoken]
        usable = [index for index, text in enumerate(tokens) if text and encoded[index].length >= FRAMES_MIN]
        # Window by window: what stands in the matrix must not know the batch.
        heard = [self._hear(encoded[index], prompts[index], tokens[index]) for index in usable]
        answers = time_tokens(
            [products for products, _ in heard],
            [len(prompts[index]) - 1 for index in usable],
            [shares for _, shares in heard],
        )
        times: list[TokenTimes | None] = [None] * len(encoded)
        for index, answer in zip(usable, answers, strict=True):
            times[index] = answer
        return times

    def _hear(
        self, window: EncodedWindow, prompt: Sequence[int], text: Sequence[int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Products of the alignment heads over the window's own frames, [heads, rows, frames], and each text
        token's probability among text tokens."""
        rows = np.array([[*prompt, *text, self.eos]], np.int32)
        forced = self._force(Memory.of([window]), rows, with_products=True)
        assert forced.products is not None
        logits = self._logits(forced.hidden[0, len(prompt) - 1 : -2])[:, : self.eos]
        shares = mx.exp(logits - log_sum_exp(logits))
        chosen = mx.take_along_axis(shares, mx.array(list(text), mx.int32)[:, None], axis=-1)
        return np.array(forced.products[0][:, :, : window.length]), np.array(chosen[:, 0])

    def _logits(self, hidden: mx.array) -> mx.array:
        return (hidden @ self.tokens).astype(mx.float32)

    def _cross(
        self, cross: CrossAttention, x: mx.array, memory: Memory, layer: int
    ) -> tuple[mx.array, mx.array]:
        """x [U, Q, d] -> what is to be added, and the products [U, H, Q, 1500]."""
        queries = split_heads(cross.query(cross.norm(x)), self.dims.n_text_head)
        pairs = [memory.cross(group, layer) for group in range(len(memory.rows))]
        output, products = attend_frames(queries, pairs)
        return cross.out(join_heads(output)), products

    def _force(self, memory: Memory, tokens: NDArray[np.int32], *, with_products: bool = False) -> ForcedPass:
        """tokens int32 [R, n], R a multiple of the memory's utterances, rows of an utterance side by side."""
        count, length = tokens.shape
        utterances = sum(map(len, memory.rows))
        heads, width = self.dims.n_text_head, self.dims.n_text_state
        x = self.tokens[:, mx.array(tokens.reshape(-1))].T.reshape(count, length, width)
        x = x + self.positions[:length]
        mask = mx.triu(mx.full((length, length), -mx.inf, mx.float32), 1)
        all_keys, all_values, kept = [], [], []
        for layer, block in enumerate(self.blocks):
            fused = block.attention.fused(block.attention.norm(x))
            queries, keys, values = (split_heads(part, heads) for part in mx.split(fused, 3, axis=-1))
            all_keys.append(keys)
            all_values.append(values)
            x = x + block.attention.out(join_heads(attend_table(queries, keys, values, mask)))
            shared = x.reshape(utterances, -1, width)
            added, products = self._cross(block.cross, shared, memory, layer)
            x = x + added.reshape(x.shape)
            x = x + block.mlp(x)
            if with_products:
                chosen = [head for at, head in self.alignment_heads if at == layer]
                if chosen:
                    kept.append(products[:, mx.array(chosen)])
        products_kept = mx.concatenate(kept, axis=1).astype(mx.float32) if kept else None
        return ForcedPass(self.norm(x), all_keys, all_values, products_kept)


def _padded(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """Rows of unlike lengths as int32 [R, longest], zeros behind; causal, so they reach nothing before
    them."""
    padded = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded
