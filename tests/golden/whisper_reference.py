"""Whisper restated in numpy, one utterance and one hypothesis at a time: what the tests hold ours against.

Model, rules on logits and OpenAI's `BeamSearchDecoder` in plain lists, written from openai-whisper 20250625
and proved on real weights against it (every greedy answer and every n-best list of ten recordings).
"""

import math
from typing import Any

import numpy as np

from worker.models import DecodingSettings, SpecialTokens, WhisperDims

Array = np.ndarray
NEG = np.float32(-np.inf)
ERF = np.vectorize(math.erf, otypes=[np.float32])
Cache = list[tuple[Array, Array]]


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def log_softmax(x: Array) -> Array:
    largest = x.max(-1, keepdims=True)
    return x - largest - np.log(np.exp(x - largest).sum(-1, keepdims=True))


def gelu(x: Array) -> Array:
    return x * np.float32(0.5) * (1 + ERF(x * np.float32(math.sqrt(0.5))))


class ReferenceWhisper:
    """Weights under OpenAI's names."""

    def __init__(self, dims: WhisperDims, weights: dict[str, Array]) -> None:
        self.dims, self.weights = dims, weights
        self._cross: dict[int, tuple[Array, Cache]] = {}

    def linear(self, x: Array, name: str) -> Array:
        product = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        return product if bias is None else product + bias

    def norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attend(
        self, q: Array, k: Array, v: Array, heads: int, mask: Array | None = None
    ) -> tuple[Array, Array]:
        q, k, v = (x.reshape(len(x), heads, -1).transpose(1, 0, 2) for x in (q, k, v))
        products = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        if mask is not None:
            products = products + mask
        return (softmax(products) @ v).transpose(1, 0, 2).reshape(q.shape[1], -1), products

    def mlp(self, x: Array, block: str) -> Array:
        hidden = gelu(self.linear(self.norm(x, f"{block}.mlp_ln"), f"{block}.mlp.0"))
        return self.linear(hidden, f"{block}.mlp.2")

    def encode(self, mel: Array) -> Array:
        """[2 T, mels] -> [T, d]."""
        x = mel
        for name, stride in (("conv1", 1), ("conv2", 2)):
            weight = self.weights[f"encoder.{name}.weight"]
            padded, length = np.pad(x, ((1, 1), (0, 0))), (len(x) - 1) // stride + 1
            taps = [padded[k : k + stride * length : stride] @ weight[:, :, k].T for k in range(3)]
            x = gelu(sum(taps) + self.weights[f"encoder.{name}.bias"])
        x = x + self.weights["encoder.positional_embedding"][: len(x)]
        for layer in range(self.dims.n_audio_layer):
            block = f"encoder.blocks.{layer}"
            hidden = self.norm(x, f"{block}.attn_ln")
            query, key, value = (
                self.linear(hidden, f"{block}.attn.{way}") for way in ("query", "key", "value")
            )
            x = x + self.linear(
                self.attend(query, key, value, self.dims.n_audio_head)[0], f"{block}.attn.out"
            )
            x = x + self.mlp(x, block)
        return self.norm(x, "encoder.ln_post")

    def cross(self, frames: Array) -> Cache:
        """Cross keys and values of each layer, once an utterance."""
        if id(frames) not in self._cross:
            names = [f"decoder.blocks.{layer}.cross_attn" for layer in range(self.dims.n_text_layer)]
            pairs = [
                (self.linear(frames, f"{name}.key"), self.linear(frames, f"{name}.value")) for name in names
            ]
            self._cross[id(frames)] = frames, pairs  # frames too: an id is free again with its array
        return self._cross[id(frames)][1]

    def decode(
        self, tokens: list[int], frames: Array, cache: Cache | None = None
    ) -> tuple[Array, Cache, list[Array]]:
        """-> logits [n, V], the cache behind them, products of cross attention by layer [H, n, 1500]."""
        past = len(cache[0][0]) if cache else 0
        x = self.weights["decoder.token_embedding.weight"][tokens]
        x = x + self.weights["decoder.positional_embedding"][past : past + len(tokens)]
        mask = np.triu(np.full((len(tokens), past + len(tokens)), NEG), 1 + past)
        new: Cache = []
        products, heads = [], self.dims.n_text_head
        for layer in range(self.dims.n_text_layer):
            block = f"decoder.blocks.{layer}"
            hidden = self.norm(x, f"{block}.attn_ln")
            q, k, v = (self.linear(hidden, f"{block}.attn.{way}") for way in ("query", "key", "value"))
            if cache:
                k, v = np.concatenate([cache[layer][0], k]), np.concatenate([cache[layer][1], v])
            new.append((k, v))
            x = x + self.linear(self.attend(q, k, v, heads, mask)[0], f"{block}.attn.out")
            q = self.linear(self.norm(x, f"{block}.cross_attn_ln"), f"{block}.cross_attn.query")
            attended, product = self.attend(q, *self.cross(frames)[layer], heads)
            products.append(product)
            x = x + self.linear(attended, f"{block}.cross_attn.out")
            x = x + self.mlp(x, block)
        return self.norm(x, "decoder.ln") @ self.weights["decoder.token_embedding.weight"].T, new, products


class ReferenceRules:
    """Logits [V] of one hypothesis and its sampled tokens -> log-probabilities of what is allowed."""

    def __init__(self, ids: SpecialTokens, settings: DecodingSettings, timestamps: bool) -> None:
        self.ids, self.settings, self.timestamps = ids, settings, timestamps

    def __call__(self, logits: Array, sampled: list[int]) -> Array:
        x = logits.astype(np.float32).copy()
        if not sampled:
            x[list(self.settings.suppress_first)] = NEG
        x[list(self.settings.suppress)] = NEG
        if self.timestamps:
            self._times(x, sampled)
        return log_softmax(x)

    def _times(self, x: Array, sampled: list[int]) -> None:
        first = self.ids.time
        x[self.ids.no_timestamps] = NEG
        if not sampled:
            x[:first] = NEG
            x[first + 51 :] = NEG
        else:
            last, before = sampled[-1] >= first, len(sampled) < 2 or sampled[-2] >= first
            if last and before:
                x[first:] = NEG
            elif last:
                x[: self.ids.eot] = NEG
            times = [token for token in sampled if token >= first]
            if times:
                x[first : times[-1] + (not (last and not before))] = NEG
        p = log_softmax(x)
        with np.errstate(divide="ignore"):
            if np.log(np.exp(p[first:]).sum()) > p[:first].max():
                x[:first] = NEG


def _best(p: np.ndarray, number: int) -> list[int]:
    """The likeliest tokens, the lower of two that tie first: as a stable sort of 51,866 would order them."""
    near = np.flatnonzero(p >= np.partition(p, -number)[-number])
    return [int(token) for token in near[np.argsort(-p[near], kind="stable")][:number]]


def beam_search(
    model: ReferenceWhisper,
    frames: Array,
    prompt: list[int],
    rules: Any,
    eot: int,
    beam: int,
    patience: float,
    most: int,
) -> list[tuple[tuple[int, ...], float, bool]]:
    """OpenAI's BeamSearchDecoder -> (tokens, sum of log-probabilities, ended) as they were finished."""
    wanted = round(beam * patience)
    logits, cache, _ = model.decode(prompt, frames)
    live: list[Any] = [([], np.float32(0), logits[-1], cache)]
    finished: dict[tuple[int, ...], tuple[float, bool]] = {}
    for step in range(most):
        candidates = {}
        for row, (tokens, score, logits, _) in enumerate(live):
            p = rules(logits, tokens)
            for token in _best(p, beam + 1):
                candidates[(*tokens, token)] = (np.float32(score + p[token]), row)
        following, ends = [], []
        for sequence, (score, row) in sorted(candidates.items(), key=lambda item: -item[1][0]):
            if sequence[-1] == eot:
                ends.append((sequence[:-1], score))
                continue
            following.append((list(sequence), score, row))
            if len(following) == beam:
                break
        for sequence, score in ends:
            if len(finished) < wanted:
                finished[sequence] = (float(score), True)
        if len(finished) >= wanted or step + 1 == most or len(prompt) + step + 1 > 448:
            live = [(tokens, score) for tokens, score, _ in following]
            break
        advanced = [
            (tokens, score, model.decode([tokens[-1]], frames, live[row][3]))
            for tokens, score, row in following
        ]
        live = [(tokens, score, out[0][-1], out[1]) for tokens, score, out in advanced]
    for tokens, score, *_ in sorted(live, key=lambda item: item[1])[::-1]:
        if len(finished) >= beam:
            break
        finished[tuple(tokens)] = (float(score), False)
    return [(sequence, score, ended) for sequence, (score, ended) in finished.items()]


def openai_warp(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`dtw_cpu` and `backtrace`, cell by cell: rows and columns of the cheapest way."""
    n, m = cost.shape
    total, trace = np.full((n + 1, m + 1), np.inf, np.float32), np.zeros((n + 1, m + 1), np.int8)
    total[0, 0] = 0
    for j in range(1, m + 1):
        for i in range(1, n + 1):
            a, b, c = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            best, way = (a, 0) if a < b and a < c else (b, 1) if b < a and b < c else (c, 2)
            total[i, j], trace[i, j] = cost[i - 1, j - 1] + best, way
    trace[0, :], trace[:, 0] = 2, 1
    i, j, path = n, m, []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        step = trace[i, j]
        i, j = i - (step != 2), j - (step != 1)
    rows, columns = np.array(path[::-1]).T
    return rows, columns
