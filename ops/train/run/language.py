"""Trains an LSTM language model on transcripts, for `rescore` (`worker.models.language.lstm`).

    python -m ops.train.run.language --speech SPEECH --out FOLDER [--texts FILE …] [--steps 1500]

Texts are the transcripts of SPEECH's training speakers, and the lines of further files; a text that holds a
sentence of the other speakers, or of --held's manifests, is left out. Every sixteenth text is kept back, and
the weights with the least perplexity on those are written. Needs the worker's packages, not PyTorch.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.utils
import numpy as np
from mlx import nn, optimizers

from ops.train.data.prepare import manifest
from ops.train.data.texts import outside, plain
from worker.models.language.lstm import FILES, MODEL_TYPE, LstmSizes
from worker.models.tokenizers.pieces import Tokenizer

BATCH, KEPT_BACK, EVERY = 64, 16, 100


def texts_of(speech: Path, more: Sequence[Path], manifests: Sequence[Path]) -> list[str]:
    """What may be learnt: transcripts, then the lines of `more`, without the texts of `manifests`."""
    entries = list(manifest(speech))
    held = {entry["text"] for entry in entries if entry["split"] != "train"}
    for path in manifests:
        held |= {plain(json.loads(line).get("text", "")) for line in path.read_text().splitlines()}
    texts = [entry["text"] for entry in entries if entry["split"] == "train"]
    for path in more:
        texts += filter(None, map(plain, path.read_text().splitlines()))
    return outside(texts, held)


def batches(texts: Sequence[Sequence[int]], edge: int) -> Iterator[tuple[mx.array, mx.array, mx.array]]:
    """Inputs [N, T], what follows each [N, T], and which of these count; N texts of like lengths."""
    by_length = sorted(texts, key=len)
    for first in range(0, len(by_length), BATCH):
        rows = by_length[first : first + BATCH]
        # Whole eights, so that few shapes are compiled.
        padded = np.full((len(rows), -(-(len(rows[-1]) + 2) // 8) * 8), edge, np.int32)
        counts = np.zeros((len(rows), padded.shape[1] - 1), np.float32)
        for index, tokens in enumerate(rows):
            padded[index, 1 : len(tokens) + 1] = tokens
            counts[index, : len(tokens) + 1] = 1
        yield mx.array(padded[:, :-1]), mx.array(padded[:, 1:]), mx.array(counts)


class Network(nn.Module):
    """As `LstmNetwork`, of MLX's own layers, which have gradients; parameters under the same names."""

    def __init__(self, sizes: LstmSizes, dropout: float) -> None:
        super().__init__()
        widths = [sizes.embedding, *[sizes.hidden] * (sizes.layers - 1)]
        self.embedding = nn.Embedding(sizes.vocabulary + 1, sizes.embedding)
        self.rnn = {"lstm": [nn.LSTM(width, sizes.hidden) for width in widths]}
        self.output = nn.Linear(sizes.hidden, sizes.vocabulary + 1)
        self.dropout = nn.Dropout(dropout)

    def __call__(self, tokens: mx.array) -> mx.array:
        """[N, T] ids -> the logits of what follows each, [N, T, V + 1]."""
        x = self.embedding(tokens)
        for layer in self.rnn["lstm"]:
            x = self.dropout(layer(x)[0])
        return self.output(x)


def loss(network: Network, inputs: mx.array, targets: mx.array, counts: mx.array) -> mx.array:
    """Mean cross-entropy of a token, in nats."""
    losses = nn.losses.cross_entropy(network(inputs), targets)
    return (losses * counts).sum() / counts.sum()


def perplexity(network: Network, texts: Sequence[Sequence[int]], edge: int) -> float:
    """Of a token, the end among them."""
    network.eval()
    nats = tokens = 0.0
    for batch in batches(texts, edge):
        count = float(np.array(batch[2].sum()))
        nats += float(np.array(loss(network, *batch))) * count
        tokens += count
    network.train()
    return math.exp(nats / tokens)


def save(network: Network, sizes: LstmSizes, tokenizer: Path, out: Path) -> None:
    """The folder that `worker.models.language.lstm` reads."""
    out.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, mx.array] = {}
    parameters: Any = mlx.utils.tree_flatten(network.parameters())
    for name, value in parameters:
        stack, _, rest = name.partition(".lstm.")
        if not rest:
            tensors[name] = value
            continue
        layer, part = rest.split(".")
        if part == "bias":
            tensors[f"{stack}.lstm.bias_ih_l{layer}"] = value
            tensors[f"{stack}.lstm.bias_hh_l{layer}"] = mx.zeros_like(value)
        else:
            tensors[f"{stack}.lstm.weight_{'ih' if part == 'Wx' else 'hh'}_l{layer}"] = value
    mx.save_safetensors(str(out / FILES["weights"]), tensors)
    widths = {"embedding": sizes.embedding, "hidden": sizes.hidden, "layers": sizes.layers}
    (out / FILES["config"]).write_text(json.dumps({"model_type": MODEL_TYPE} | widths) + "\n")
    (out / FILES["tokenizer"]).write_bytes(tokenizer.read_bytes())


def train(asked: argparse.Namespace) -> float:
    """Trains and writes the model; returns the perplexity of the texts kept back."""
    tokenizer, texts = Tokenizer.from_file(asked.tokenizer), texts_of(asked.speech, asked.texts, asked.held)
    spelled = [tokenizer.encode(text) for text in texts]
    tests, learnt = spelled[::KEPT_BACK], [each for at, each in enumerate(spelled) if at % KEPT_BACK]
    edge = tokenizer.vocabulary_size
    sizes = LstmSizes(asked.width, asked.hidden, asked.layers, edge)
    rng = np.random.default_rng(asked.seed)
    mx.random.seed(asked.seed)
    network, optimizer = Network(sizes, asked.dropout), optimizers.AdamW(asked.rate, weight_decay=0.01)
    gradients = nn.value_and_grad(network, loss)
    rounds = list(batches(learnt, edge))
    print(f"{len(learnt)} texts, {len(tests)} kept back", flush=True)
    order, best = np.zeros(0, np.int64), math.inf
    for step in range(1, asked.steps + 1):
        if not len(order):
            order = rng.permutation(len(rounds))
        optimizer.learning_rate = asked.rate * (1.02 - step / asked.steps)
        _, gradient = gradients(network, *rounds[order[0]])
        clipped, _ = optimizers.clip_grad_norm(gradient, 1.0)
        optimizer.update(network, clipped)
        mx.eval(network.parameters(), optimizer.state)
        order = order[1:]
        if step == asked.steps or step % EVERY == 0:
            now = perplexity(network, tests, edge)
            print(f"step {step}: perplexity {now:.2f}", flush=True)
            if now < best:
                best = now
                save(network, sizes, asked.tokenizer, asked.out)
    return best


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--speech", type=Path, required=True, help="folder with manifest.jsonl")
    parser.add_argument("--texts", type=Path, nargs="*", default=[], help="more texts, one a line")
    parser.add_argument(
        "--held", type=Path, nargs="*", default=sorted(Path("samples").glob("*/manifest.jsonl"))
    )
    parser.add_argument("--tokenizer", type=Path, default=Path("models/demo/tokenizer.model"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=7)
    train(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
