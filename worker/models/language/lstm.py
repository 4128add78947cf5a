"""An LSTM language model over a tokenizer's pieces: the log-probability of a text and its end.

A folder: `config.json` ({"model_type": "lstm_language_model", "embedding": E, "hidden": H, "layers": L}),
`tokenizer.model` (sentencepiece, V pieces) and `model.safetensors` with PyTorch's names and layouts:
`embedding.weight` [V + 1, E], `rnn.lstm.{weight_ih, weight_hh, bias_ih, bias_hh}_lN` (gates input, forget,
cell, output), `output.weight` [V + 1, H], `output.bias`. Id V begins and ends a text. Knows no sound; it is
computed in float32 whatever the device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from spool.errors import ModelUnreadable
from spool.planning.model_size import LANGUAGE_MODEL
from worker.models.artifacts.safetensors import read_tensors, sha256_of
from worker.models.base import ModelInfo
from worker.models.heads.transducer import LstmLayer, LstmStack, LstmState
from worker.models.nemo.load import WEIGHTS_NAME
from worker.models.tokenizers.pieces import Tokenizer
from worker.models.weights import install, parameter_bytes, precision

MODEL_TYPE = LANGUAGE_MODEL
FILES = {"weights": WEIGHTS_NAME, "config": "config.json", "tokenizer": "tokenizer.model"}


@dataclass(frozen=True, slots=True)
class LstmSizes:
    """embedding, hidden: widths. layers: LSTM layers, one upon another. vocabulary: pieces, without the id
    that begins and ends a text."""

    embedding: int
    hidden: int
    layers: int
    vocabulary: int


def is_language_model(config: Mapping[str, Any]) -> bool:
    """Whether a folder's config.json is of this family."""
    return config.get("model_type") == MODEL_TYPE


class LstmNetwork(nn.Module):
    """Embedding, LSTM layers, output."""

    def __init__(self, sizes: LstmSizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary + 1, sizes.embedding)
        self.rnn = LstmStack(sizes.hidden, sizes.layers)
        self.rnn.lstm[0] = LstmLayer(sizes.embedding, sizes.hidden)
        self.output = nn.Linear(sizes.hidden, sizes.vocabulary + 1)
        self._shape = (sizes.layers, sizes.hidden)

    def __call__(self, tokens: mx.array) -> mx.array:
        """[N, T] ids -> the top layer's output behind each, [N, T, H]; every row begins anew."""
        entering = self.rnn.lstm[0].entering(self.embedding(tokens))
        zeros = mx.zeros((tokens.shape[0], *self._shape))
        state, outputs = LstmState(zeros, zeros), []
        for step in range(tokens.shape[1]):
            output, state = self.rnn(entering[:, step], state)
            outputs.append(output)
        return mx.stack(outputs, axis=1)


class LstmLanguageModel:
    """A loaded language model. `tokenizer` spells what it reads."""

    def __init__(self, folder: Path, config: Mapping[str, Any], name: str) -> None:
        """Raises ModelUnreadable, and WeightsMismatch where the weights are of other sizes."""
        self.tokenizer = Tokenizer.from_file(folder / FILES["tokenizer"])
        self.sizes = _sizes_of(config, self.tokenizer.vocabulary_size, str(folder))
        self._network = LstmNetwork(self.sizes)
        weights = read_tensors(folder / FILES["weights"])
        install(self._network, weights, mx.float32, str(folder))
        mx.eval(self._network.parameters())
        files = {role: sha256_of(folder / file) for role, file in FILES.items()}
        self.info = ModelInfo(
            name=name,
            sha256=files["weights"],
            size=parameter_bytes(self._network),
            files=files,
            family=MODEL_TYPE,
            **precision(mx.float32),
        )

    def score(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """[N], of each token sequence the log-probability of its tokens and of the end behind them.

        The sequences of one call share its products: the same sequences give the same bits, whatever else is
        read in other calls."""
        edge, longest = self.sizes.vocabulary, max(map(len, texts)) + 1
        rows = np.full((len(texts), longest), edge, np.int32)
        for row, tokens in enumerate(texts):
            rows[row, 1 : len(tokens) + 1] = tokens
        outputs, sums = self._network(mx.array(rows)), []
        for row, tokens in enumerate(texts):
            # One by one: the logits of a whole list with a large vocabulary may not fit.
            steps = len(tokens) + 1
            logits = self._network.output(outputs[row, :steps])
            wanted = mx.array([*tokens, edge], mx.int32)[:, None]
            spoken = mx.take_along_axis(logits, wanted, axis=-1)[:, 0]
            sums.append((spoken - mx.logsumexp(logits, axis=-1)).sum())
        return np.array(mx.stack(sums), np.float32)


def _sizes_of(config: Mapping[str, Any], vocabulary: int, source: str) -> LstmSizes:
    sizes = []
    for name in ("embedding", "hidden", "layers"):
        value = config.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1 << 16:
            raise ModelUnreadable(f"{source}: {name} of the language model must be a positive whole number")
        sizes.append(value)
    embedding, hidden, layers = sizes
    return LstmSizes(embedding, hidden, layers, vocabulary)
