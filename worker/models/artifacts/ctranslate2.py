"""Reads CTranslate2's binary of a model, version 4 to 6, into arrays under its names.

Little endian, nothing aligned: u32 version, str spec, u32 revision, u32 n, n variables, u32 m, m aliases. A
str is u16 length with its closing zero, then the bytes. A variable is str name, u8 rank, u32 dims, u8 dtype,
u32 bytes, data row-major; an alias two str. Rank 0 is a setting. A quantised `X/weight` stands beside its
`X/weight_scale` (int8: one number a row, int16: one) and is real = stored / scale. Knows no family.
(CTranslate2, include/ctranslate2/models/model.h and python/ctranslate2/specs/model_spec.py.)
"""

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spool.errors import ModelUnreadable, WeightsMismatch
from worker.models.artifacts.tensors import rename

Array = NDArray[np.generic]

HUB_NAMES = (
    (r"/", "."),
    (r"\.layer_(\d+)\.", r".layers.\1."),
    (r"\.position_encodings\.encodings$", ".embed_positions.weight"),
    (r"^decoder\.embeddings\.", "decoder.embed_tokens."),
    (r"^decoder\.projection\.", "proj_out."),
    (r"\.self_attention\.layer_norm\.", ".self_attn_layer_norm."),
    (r"\.attention\.layer_norm\.", ".encoder_attn_layer_norm."),
    (r"\.ffn\.layer_norm\.", ".final_layer_norm."),
    (r"\.self_attention\.", ".self_attn."),
    (r"\.attention\.", ".encoder_attn."),
    (r"\.ffn\.linear_0\.", ".fc1."),
    (r"\.ffn\.linear_1\.", ".fc2."),
    (r"\.gamma$", ".weight"),
    (r"\.beta$", ".bias"),
)
"""What transformers calls the tensors of an encoder-decoder."""
FUSED = {
    "self_attn.linear_0": "qkv",
    "self_attn.linear_1": "o",
    "encoder_attn.linear_0": "q",
    "encoder_attn.linear_1": "kv",
    "encoder_attn.linear_2": "o",
}
"""The projections that lie in one matrix."""

BFLOAT16 = 5
DTYPES: dict[int, np.dtype[np.generic]] = {
    0: np.dtype("<f4"),
    1: np.dtype("i1"),
    2: np.dtype("<i2"),
    3: np.dtype("<i4"),
    4: np.dtype("<f2"),
}
VARIABLES_MAX = 100_000
RANK_MAX = 8


class _Reader:
    """Walks the bytes of one file and never past their end."""

    def __init__(self, data: memoryview, source: str) -> None:
        self.data, self.source, self.offset = data, source, 0

    def take(self, count: int) -> memoryview:
        if self.offset + count > len(self.data):
            raise ModelUnreadable(
                f"{self.source}: cut off: {count} bytes announced at {self.offset}, "
                f"the file has {len(self.data)}"
            )
        self.offset += count
        return self.data[self.offset - count : self.offset]

    def number(self, code: str) -> int:
        return int(struct.unpack("<" + code, self.take(struct.calcsize(code)))[0])

    def text(self) -> str:
        raw = bytes(self.take(self.number("H")))
        if not raw.endswith(b"\0"):
            raise ModelUnreadable(f"{self.source}: not a CTranslate2 binary: no name at {self.offset}")
        return raw[:-1].decode(errors="replace")

    def variable(self) -> tuple[str, Array]:
        name, rank = self.text(), self.number("B")
        if rank > RANK_MAX:
            raise ModelUnreadable(f"{self.source}: {name} has {rank} dimensions")
        shape = tuple(self.number("I") for _ in range(rank))
        code = self.number("B")
        raw = self.take(self.number("I"))
        if code == BFLOAT16:
            value: Array = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif code in DTYPES:
            dtype = DTYPES[code]
            if len(raw) % dtype.itemsize:
                raise ModelUnreadable(f"{self.source}: {name} holds {len(raw)} bytes of {dtype}")
            value = np.frombuffer(raw, dtype)
        else:
            raise ModelUnreadable(f"{self.source}: {name} has the unknown type {code}")
        if value.size != int(np.prod(shape, dtype=np.int64)):
            raise ModelUnreadable(f"{self.source}: {name} holds {value.size} numbers, not {list(shape)}")
        return name, value.reshape(shape)


def read_binary(path: Path, kind: str) -> tuple[dict[str, Array], int | None]:
    """Every variable by its own name, integers turned into real numbers; settings are 0-dimensional. And
    the bits of those that were integers, None if none was: the weights are not quantised.

    kind: the model's specification. Raises ModelUnreadable where the file is not a whole one of it.
    """
    try:
        data = memoryview(path.read_bytes())
    except OSError as cause:
        raise ModelUnreadable(f"{path}: cannot be read: {cause.strerror}") from cause
    reader = _Reader(data, str(path))
    version = reader.number("I")
    if not 4 <= version <= 6:
        raise ModelUnreadable(f"{path}: binary version {version}; 4 to 6 are known")
    spec = reader.text()
    if spec != kind:
        raise ModelUnreadable(f"{path}: a {spec}, not a {kind}")
    reader.number("I")  # the revision says how the vocabulary is kept
    variables = dict(reader.variable() for _ in range(_count(reader)))
    for _ in range(_count(reader)):
        alias, name = reader.text(), reader.text()
        if name not in variables:
            raise ModelUnreadable(f"{path}: {alias} stands for {name}, which is missing")
        variables[alias] = variables[name]
    if reader.offset != len(data):
        raise ModelUnreadable(f"{path}: {len(data) - reader.offset} bytes behind the end")
    bits = [8 * each.itemsize for each in variables.values() if each.ndim and each.dtype.kind == "i"]
    return dequantize(variables, str(path)), min(bits, default=None)


def _count(reader: _Reader) -> int:
    count = reader.number("I")
    if count > VARIABLES_MAX:
        raise ModelUnreadable(f"{reader.source}: announces {count} variables")
    return count


def dequantize(variables: dict[str, Array], source: str) -> dict[str, Array]:
    """Integer weights as float32; their scales are dropped."""
    out: dict[str, Array] = {}
    for name, value in variables.items():
        if name.endswith("_scale"):
            continue
        scale = variables.get(name + "_scale")
        if value.ndim and value.dtype.kind == "i":
            if scale is None or (scale.ndim and scale.size != value.shape[0]):
                raise WeightsMismatch(f"{source}: {name} is quantised and has no scale that fits")
            real = scale.astype(np.float32)
            out[name] = value.astype(np.float32) / (
                real.reshape(-1, *[1] * (value.ndim - 1)) if real.ndim else real
            )
        else:
            out[name] = value
    return out


def hub_names(variables: dict[str, Array], source: str) -> dict[str, Array]:
    """The tensors of an encoder-decoder under transformers' names, fused projections taken apart. A bias of
    keys that is zero is left out: the fused one has it also where the model has none."""
    out: dict[str, Array] = {}
    for stored, value in variables.items():
        if value.ndim == 0:
            continue
        name = rename(stored, HUB_NAMES)
        layer, _, kind = name.rpartition(".")
        fused = next((each for each in FUSED if layer.endswith(each)), None)
        if fused is None:
            out[name] = value
            continue
        ways = FUSED[fused]
        if len(value) % len(ways):
            raise WeightsMismatch(f"{source}: {stored} {list(value.shape)} does not hold {len(ways)} layers")
        block = layer.rpartition(".")[0]
        for way, part in zip(ways, np.split(value, len(ways)), strict=True):
            if way != "k" or kind != "bias" or np.any(part):
                out[f"{block}.{'out' if way == 'o' else way}_proj.{kind}"] = part
    return out
