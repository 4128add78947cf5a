"""Makes a model of fewer bits: the matrices of its linear layers in MLX's affine groups, all else as it was.

What is written is a folder of the model's own layout, with `quantization` in config.json, as mlx-community
has it, and in the metadata of model.safetensors. Embeddings, output layers, norms, convolutions, recurrent
and small layers stay: they are a few percent of a model's bytes, and words depend on them most.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx

from spool.catalogue.records import RECORD_NAME
from spool.errors import InvalidRequest, UnknownModel, WeightsMismatch
from worker.models.artifacts.grouped import bits_of
from worker.models.artifacts.hub_folder import TOKENIZER
from worker.models.artifacts.nemo import open_nemo
from worker.models.artifacts.nemo_files import CONFIG_NAME as NEMO_CONFIG
from worker.models.artifacts.safetensors import CONFIG, INDEX, QUANTIZATION, Safetensors, read_tensors
from worker.models.artifacts.tensors import Weights
from worker.models.artifacts.torch_checkpoint import open_checkpoint
from worker.models.base import ModelFiles
from worker.models.canary.load import ALIGNER, ALIGNER_FOLDER
from worker.models.configuration import parse_tree
from worker.models.whisper.artifacts import BINARY, checkpoint_of, open_folder

WEIGHTS = "model.safetensors"
STORED = ("final.safetensors", WEIGHTS, "final.pt", INDEX, "weights.safetensors", "weights.npz")
"""Files of weights, in the order of preference."""
WEIGHT_SUFFIXES = (".safetensors", ".npz", ".pt", ".bin", ".zip")
CHOICES = (8, 4)
GROUP_SIZES = (64, 32)
KEPT = re.compile(r"embed|^encoder\.out|^joint\.|(^|\.)ctc|output_layer|proj_out|lm_head|log_softmax")
SMALL = 32 * 32
"""A matrix of fewer weights stays."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model to quantise. config: the settings of config.json, empty for a model that has none. others: the
    files that go along, by name. parts: models in subfolders."""

    weights: Weights
    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, bytes | Path] = field(default_factory=dict)
    parts: "Mapping[str, Source]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    """How many matrices were quantised, and the bytes of all tensors."""

    matrices: int
    bytes: int


def quantise(files: ModelFiles, folder: Path, bits: int) -> Written:
    """Writes the model of `files` to `folder` in so many bits.

    Raises InvalidRequest for other bits than 4 and 8 and for a model that is quantised already or has nothing
    to quantise, WeightsMismatch for weights that are no numbers, and what reading the files raises.
    """
    if bits not in CHOICES:
        raise InvalidRequest(f"weights are quantised with 8 or 4 bits, not with {bits}")
    with _open(files) as source:
        written = _write(source, folder, bits)
    if not written.matrices:
        raise InvalidRequest(f"{files.path}: has no linear layer of a size that is worth quantising")
    return written


def _write(source: Source, folder: Path, bits: int) -> Written:
    present = bits_of(source.weights)
    if present is not None:
        raise InvalidRequest(_present(source.name, present))
    folder.mkdir(parents=True, exist_ok=True)
    tensors, stated = _quantise_tensors(source, bits)
    mx.save_safetensors(str(folder / WEIGHTS), tensors, {"format": "mlx", QUANTIZATION: json.dumps(stated)})
    if source.config:
        text = json.dumps({**source.config, QUANTIZATION: stated}, indent=1, default=str)
        (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    for name, content in source.others.items():
        if isinstance(content, Path):
            shutil.copyfile(content, folder / name)
        else:
            (folder / name).write_bytes(content)
    parts = [_write(part, folder / name, bits) for name, part in source.parts.items()]
    count = sum(name.endswith(".scales") for name in tensors)
    own = Written(count, sum(value.nbytes for value in tensors.values()))
    return Written(sum(each.matrices for each in (own, *parts)), sum(each.bytes for each in (own, *parts)))


def _quantise_tensors(source: Source, bits: int) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Tensors to write, and what says how they are quantised."""
    tensors: dict[str, mx.array] = {}
    stated: dict[str, Any] = {"group_size": GROUP_SIZES[0], "bits": bits}
    embeddings = [name for name in source.weights.shapes if "embed" in name]
    for name in sorted(source.weights.shapes):
        value = source.weights.read(name)
        group_size = group_size_of(name, value)
        if group_size is None or any(_is_same(value, source.weights, other) for other in embeddings):
            tensors[name] = value
            continue
        if not bool(mx.isfinite(value.astype(mx.float32)).all()):
            raise WeightsMismatch(f"{source.name}: {name} holds numbers that are NaN or infinite")
        # Scales in 16 bits, half a bit a weight less than in 32; MLX gives them the matrix's own dtype.
        quantised = mx.quantize(value.astype(mx.float16), group_size=group_size, bits=bits)
        layer = name.removesuffix(".weight")
        tensors |= zip((name, f"{layer}.scales", f"{layer}.biases"), quantised, strict=True)
        mx.eval(quantised)
        if group_size != stated["group_size"]:
            stated[layer] = {"group_size": group_size, "bits": bits}
    return tensors, stated


def group_size_of(name: str, value: mx.array) -> int | None:
    """The size of a tensor's groups, 64 or else 32; None for one that stays as it is."""
    if not name.endswith(".weight") or value.ndim != 2 or value.size < SMALL or KEPT.search(name):
        return None
    return next((size for size in GROUP_SIZES if value.shape[1] % size == 0), None)


def _is_same(value: mx.array, weights: Weights, name: str) -> bool:
    """Whether a matrix is an embedding under another name."""
    return weights.shapes[name] == tuple(value.shape) and bool(mx.array_equal(weights.read(name), value))


@contextmanager
def _open(files: ModelFiles) -> Iterator[Source]:
    path = files.path
    with ExitStack() as stack:
        if path.is_file():
            yield _open_nemo(path, stack)
        elif (path / BINARY).is_file() or checkpoint_of(path) is not None:
            yield _open_whisper(path)
        else:
            yield _open_tensors(path, files.config, stack)


def _open_nemo(path: Path, stack: ExitStack, prefix: str = "") -> Source:
    """A `.nemo` file, or the second model in it whose files' names begin with `prefix`."""
    archive = stack.enter_context(open_nemo(path, prefix))
    config = parse_tree(archive.config, str(path))
    if "sortformer_modules" in config:
        raise InvalidRequest(f"{path}: tells speakers apart, and is used in float32 alone")
    named = archive.config.decode("utf-8", errors="replace")
    tokenizers = {name: content for name, content in archive.files.items() if name in named}
    tokenizers = tokenizers or dict([archive.tokenizer(None) or ("", b"")])
    has_aligner = not prefix and ALIGNER + NEMO_CONFIG in archive.files
    parts = {ALIGNER_FOLDER: _open_nemo(path, stack, ALIGNER)} if has_aligner else {}
    others = {name: content for name, content in tokenizers.items() if name}
    return Source(archive.weights, f"{path}", config, others, parts)


def _open_whisper(folder: Path) -> Source:
    """A Whisper whose file is no named tensors, as OpenAI's."""
    artifacts = open_folder(folder)
    if artifacts.bits is not None:
        raise InvalidRequest(_present(folder, artifacts.bits))
    settings = artifacts.settings
    config = {
        **asdict(artifacts.dims),
        "suppress_tokens": settings.suppress,
        "begin_suppress_tokens": settings.suppress_first,
        "alignment_heads": settings.alignment_heads,
    }
    others = {TOKENIZER: folder / TOKENIZER}
    return Source(Safetensors(artifacts.tensors), str(folder), config, others)


def _open_tensors(folder: Path, config: Mapping[str, Any], stack: ExitStack) -> Source:
    """A folder with named tensors."""
    path = next((folder / name for name in STORED if (folder / name).is_file()), None)
    if path is None:
        raise UnknownModel(f"{folder}: holds none of {', '.join((BINARY, *STORED))}, so no model")
    weights = stack.enter_context(open_checkpoint(path)) if path.suffix == ".pt" else read_tensors(path)
    others = {
        each.name: each
        for each in sorted(folder.iterdir())
        if each.is_file() and each.name not in (CONFIG, RECORD_NAME) and each.suffix not in WEIGHT_SUFFIXES
    }
    others.pop(INDEX, None)
    return Source(weights, str(folder), config, others)


def _present(source: str | Path, bits: int) -> str:
    return f"{source}: quantised already, with {bits} bits; name the model that it was made from"
