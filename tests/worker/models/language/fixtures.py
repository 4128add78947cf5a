"""A small random language model over the demo model's pieces."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np

from worker.models import FILES, Tokenizer
from worker.models.language.lstm import MODEL_TYPE

DEMO = Path(__file__).parents[4] / "models" / "demo"
EMBEDDING, HIDDEN, LAYERS = 12, 20, 2

Tensors = dict[str, np.ndarray]


def random_tensors() -> Tensors:
    vocabulary = Tokenizer.from_file(DEMO / FILES["tokenizer"]).vocabulary_size
    generator = np.random.default_rng(5)
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.weight": (vocabulary + 1, EMBEDDING),
        "output.weight": (vocabulary + 1, HIDDEN),
        "output.bias": (vocabulary + 1,),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"rnn.lstm.weight_ih_l{layer}": (4 * HIDDEN, HIDDEN if layer else EMBEDDING),
            f"rnn.lstm.weight_hh_l{layer}": (4 * HIDDEN, HIDDEN),
            f"rnn.lstm.bias_ih_l{layer}": (4 * HIDDEN,),
            f"rnn.lstm.bias_hh_l{layer}": (4 * HIDDEN,),
        }
    return {name: generator.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def write_language_model(folder: Path, tensors: Tensors, **changes: object) -> Path:
    config = {"model_type": MODEL_TYPE, "embedding": EMBEDDING, "hidden": HIDDEN, "layers": LAYERS} | changes
    (folder / FILES["config"]).write_text(json.dumps(config))
    (folder / FILES["tokenizer"]).write_bytes((DEMO / "tokenizer.model").read_bytes())
    mx.save_safetensors(str(folder / FILES["weights"]), {k: mx.array(v) for k, v in tensors.items()})
    return folder
