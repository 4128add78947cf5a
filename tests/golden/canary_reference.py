"""Canary's decoder and its searches restated in numpy, one utterance at a time: what the tests hold ours
against, written from NeMo 3.0.0 with its beam's defects repaired, and proved on NeMo's own lists.
"""

import numpy as np

Array = np.ndarray
Cache = list[tuple[Array, Array]]
LAYERS = "transf_decoder._decoder.layers"
TOP = "transf_decoder._embedding"


def log_softmax(x: Array) -> Array:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


class ReferenceCanary:
    """Weights under NeMo's names."""

    def __init__(self, weights: dict[str, Array], layers: int, heads: int) -> None:
        self.weights, self.layers, self.heads = weights, layers, heads

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attend(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        rows, width = q.shape
        q, k, v = (x.reshape(len(x), self.heads, -1).transpose(1, 0, 2) for x in (q, k, v))
        root = q.shape[-1] ** 0.25
        products = (q / root) @ (k / root).transpose(0, 2, 1)
        if mask is not None:
            products = products + mask
        return (np.exp(log_softmax(products)) @ v).transpose(1, 0, 2).reshape(rows, width)

    def run(self, tokens: list[int], frames: Array, cache: Cache | None = None) -> tuple[Array, Cache]:
        """tokens behind what is cached, frames [T, d] -> log-probabilities [n, V], the cache."""
        past = len(cache[0][0]) if cache else 0
        positions = self.weights[f"{TOP}.position_embedding.pos_enc"][past : past + len(tokens)]
        x = self.norm(self.weights[f"{TOP}.token_embedding.weight"][tokens] + positions, f"{TOP}.layer_norm")
        mask = np.where(np.tril(np.ones((len(tokens), past + len(tokens))), past) > 0, 0.0, -1e4)
        new: Cache = []
        for layer in range(self.layers):
            name = f"{LAYERS}.{layer}"
            y, own = self.norm(x, f"{name}.layer_norm_1"), f"{name}.first_sub_layer"
            q, k, v = (self.linear(y, f"{own}.{way}_net") for way in ("query", "key", "value"))
            if cache:
                k, v = np.concatenate([cache[layer][0], k]), np.concatenate([cache[layer][1], v])
            new.append((k, v))
            x = x + self.linear(self.attend(q, k, v, mask), f"{own}.out_projection")
            y, cross = self.norm(x, f"{name}.layer_norm_2"), f"{name}.second_sub_layer"
            k, v = (self.linear(frames, f"{cross}.{way}_net") for way in ("key", "value"))
            heard = self.attend(self.linear(y, f"{cross}.query_net"), k, v)
            x = x + self.linear(heard, f"{cross}.out_projection")
            y, inner = self.norm(x, f"{name}.layer_norm_3"), f"{name}.third_sub_layer"
            x = x + self.linear(np.maximum(self.linear(y, f"{inner}.dense_in"), 0), f"{inner}.dense_out")
        x = self.norm(x, "transf_decoder._decoder.final_layer_norm")
        return log_softmax(self.linear(x, "log_softmax.mlp.layer0")), new


def beam_search(
    model: ReferenceCanary,
    frames: Array,
    prompt: list[int],
    ends: tuple[int, ...],
    limit: int,
    beam: int,
    alpha: float,
) -> list[tuple[list[int], float]]:
    """The hypotheses of the last ranking: tokens before the end, the sum with the end's."""
    logs, cache = model.run(prompt, frames)
    best = np.argsort(-logs[-1], kind="stable")[:beam].tolist()
    live = [([token], float(logs[-1][token]), cache) for token in best]
    for _ in range(limit - 1):
        if all(tokens[-1] in ends for tokens, *_ in live):
            break
        candidates = []
        for tokens, score, cache in live:
            length = 1 + len(prompt) + sum(token not in ends for token in tokens)
            penalty = ((5 + length) / 6) ** alpha
            if tokens[-1] in ends:
                candidates.append((score / penalty, [*tokens, ends[-1]], score, cache))
                continue
            logs, after = model.run([tokens[-1]], frames, cache)
            for token in np.argsort(-logs[-1], kind="stable")[:beam].tolist():
                total = score + float(logs[-1][token])
                candidates.append((total / penalty, [*tokens, token], total, after))
        ranked = sorted(candidates, key=lambda each: -each[0])[:beam]
        live = [(tokens, score, cache) for _, tokens, score, cache in ranked]
    return [(before_end(tokens, ends), score) for tokens, score, _ in live]


def before_end(tokens: list[int], ends: tuple[int, ...]) -> list[int]:
    return tokens[: next((at for at, token in enumerate(tokens) if token in ends), len(tokens))]
