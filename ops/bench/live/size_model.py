"""A streaming model of a size, with weights that were never trained: for time and memory, not for words.

    python -m ops.bench.live.size_model FOLDER [--width 128] [--layers 8] [--tokens 3.0]

Widens tests/golden/streaming/model.nemo (cache-aware FastConformer with RNNT and CTC heads, 80 ms a frame),
gives it more layers, and fills it with random numbers; 128 and 8 are 3.4 million parameters. The bias of the
CTC head's blank is moved until greedy search finds about `tokens` a second in the recordings beside that
model, as many as there are in speech; each is a word. Measure with `--head ctc`: a transducer that was never
trained says all it has to say in one frame. Prints the parameters and the tokens a second.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 - behind OpenBLAS
import numpy as np  # noqa: E402
import yaml  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from ops.bench.live.run import read_samples  # noqa: E402
from worker.audio import SAMPLE_RATE  # noqa: E402
from worker.live.events import Final  # noqa: E402
from worker.live.group import LiveGroup  # noqa: E402
from worker.live.session import LiveOptions  # noqa: E402
from worker.models.artifacts.nemo import open_nemo  # noqa: E402
from worker.models.load import load_model  # noqa: E402
from worker.models.requests import SearchOptions  # noqa: E402
from worker.models.streaming import require_streaming  # noqa: E402

PATTERN = Path(__file__).parents[3] / "tests" / "golden" / "streaming" / "model.nemo"
WIDTH = 64
"""Of the pattern, with four heads; the name of its layers, and of the bias of its labels."""
Floats = NDArray[np.float32]
_LAYER = re.compile(r"encoder\.layers\.(\d+)\.(.+)")
CTC = "ctc_decoder.decoder_layers.0.weight"
CTC_BIAS = "ctc_decoder.decoder_layers.0.bias"


def write(folder: Path, width: int, layers: int, tokens: float) -> tuple[int, float]:
    """Write the model; its parameters, and the tokens a second that it finds."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(0)
    with open_nemo(PATTERN) as archive:
        config = yaml.safe_load(archive.config)
        _, pieces = archive.tokenizer(None) or ("", b"")
        (folder / "tokenizer.model").write_bytes(pieces)
        shapes = archive.weights.shapes
        kept = {name: archive.weights.read(name) for name in shapes if name.startswith("preprocessor.")}
    weights = dict(kept)
    for name, shape in shapes.items():
        match = _LAYER.fullmatch(name)
        if name in kept or (match and match[1] != "0"):
            continue
        names = [f"encoder.layers.{layer}.{match[2]}" for layer in range(layers)] if match else [name]
        for own in names:
            weights[own] = _random(own, _widened(shape, width), numbers)
    config["encoder"] |= {"d_model": width, "n_layers": layers}
    config["joint"]["jointnet"]["encoder_hidden"] = width
    (folder / "config.json").write_text(json.dumps(config))
    # Every label begins a word, or the words would have no end.
    labels = [0.0 if piece.startswith("\u2581") else -100.0 for piece in config["joint"]["vocabulary"]]
    weights[CTC_BIAS] = mx.array([*labels, 0.0])
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    weights[CTC] = _without_mean(weights[CTC], _frames(folder))
    low, high = -8.0, 8.0
    for _ in range(8):
        blank = (low + high) / 2
        weights[CTC_BIAS] = mx.array([*labels, blank])
        mx.save_safetensors(str(folder / "model.safetensors"), weights)
        rate = _tokens_a_second(folder)
        low, high = (blank, high) if rate > tokens else (low, blank)
        if 0.7 * tokens <= rate <= 1.5 * tokens:
            break
    return sum(value.size for name, value in weights.items() if name not in kept), rate


def _widened(shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    """The shape of a tensor whose pattern has this one."""
    # Numbers that follow from the pattern's width, and in its tensors from nothing else.
    sizes = {factor * WIDTH // 4: factor * width // 4 for factor in (1, 4, 8, 16)}
    return tuple(sizes.get(size, size) for size in shape)


def _random(name: str, shape: tuple[int, ...], numbers: np.random.Generator) -> mx.array:
    if "norm" in name:
        return mx.ones(shape) if name.endswith("weight") else mx.zeros(shape)
    spread = 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 0.02
    return mx.array((numbers.standard_normal(shape) * spread).astype(np.float32))


def _frames(folder: Path) -> Floats:
    """[T, width]: what the encoder makes of the recordings."""
    model = require_streaming(load_model(str(folder)))
    stream = model.open_stream((70, 1))
    stream.push(_recordings())
    stream.finish()
    steps = []
    while stream.is_ready:
        steps += model.step([stream])
    return np.concatenate([np.array(frames.astype(mx.float32)) for frames in steps])


def _without_mean(weight: mx.array, frames: Floats) -> mx.array:
    """Blind to what all frames have in common, which is most of an untrained encoder's output."""
    mean = frames.mean(axis=0)
    mean /= np.linalg.norm(mean)
    matrix = np.array(weight)[..., 0]
    return mx.array((matrix - np.outer(matrix @ mean, mean))[..., None])


def _recordings() -> Floats:
    return np.concatenate([read_samples(path) for path in sorted(PATTERN.parent.glob("*.flac"))])


def _tokens_a_second(folder: Path) -> float:
    search = SearchOptions(head="ctc", att_context=(70, 1))
    group = LiveGroup(load_model(str(folder)), LiveOptions(search))
    session = group.open()
    samples = _recordings()
    session.push(samples)
    session.finish()
    count = 0
    while group.is_ready:
        events = [event for result in group.step() for event in result.events]
        count += sum(len(event.tokens) for event in events if isinstance(event, Final))
    return count / (len(samples) / SAMPLE_RATE)


def main() -> None:
    """Write the model and print what it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=float, default=3.0)
    asked = parser.parse_args()
    parameters, rate = write(asked.folder, asked.width, asked.layers, asked.tokens)
    sys.stdout.write(json.dumps({"parameters": parameters, "tokens_a_second": rate}) + "\n")


if __name__ == "__main__":
    main()
