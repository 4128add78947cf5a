"""Reads CTranslate2's binary of a Whisper model, version 4 to 6, into arrays under OpenAI's names.

Little endian, nothing aligned: u32 version, str spec, u32 revision, u32 n, n variables, u32 m, m aliases. A
str is u16 length with its closing zero, then the bytes. A variable is str name, u8 rank, u32 dims, u8 dtype,
u32 bytes, data row-major; an alias two str. Rank 0 is a setting. A quantised `X/weight` stands beside its
`X/weight_scale` (int8: one number a row, int16: one) and is real = stored / scale. Keys have no bias in
Whisper, so their third of a fused bias must be zero. (CTranslate2, include/ctranslate2/models/model.h and
python/ctranslate2/specs/model_spec.py.)
"""

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spool.errors import ModelUnreadable, WeightsMismatch
from worker.models.whisper.config import WhisperDims, check_dims, is_layer_name

Array = NDArray[np.generic]

BFLOAT16 = 5
DTYPES: dict[int, np.dtype[np.generic]] = {
    0: np.dtype("<f4"),
    1: np.dtype("i1"),
    2: np.dtype("<i2"),
    3: np.dtype("<i4"),
    4: np.dtype("<f2"),
}
SPEC = "WhisperSpec"
VARIABLES_MAX = 100_000
RANK_MAX = 8
TIED = "decoder/projection/weight"  # the token table, under another name

TOP_NAMES = {
    ("encoder", "conv1"): "encoder.conv1",
    ("encoder", "conv2"): "encoder.conv2",
    ("encoder", "layer_norm"): "encoder.ln_post",
    ("decoder", "layer_norm"): "decoder.ln",
    ("decoder", "embeddings"): "decoder.token_embedding",
}
BLOCKS = {"self_attention": "attn", "attention": "cross_attn", "ffn": "mlp"}
FUSED = {
    ("attn", 0): ("query", "key", "value"),
    ("attn", 1): ("out",),
    ("cross_attn", 0): ("query",),
    ("cross_attn", 1): ("key", "value"),
    ("cross_attn", 2): ("out",),
    ("mlp", 0): ("0",),
    ("mlp", 1): ("2",),
}
KINDS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "encodings": "weight"}


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


def read_binary(path: Path) -> tuple[dict[str, Array], bool]:
    """Every variable by its own name, integers turned into real numbers; settings are 0-dimensional. And
    whether any was an integer: the weights are quantised.

    Raises ModelUnreadable where the file is not a Whisper of this format, whole.
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
    if spec != SPEC:
        raise ModelUnreadable(f"{path}: a {spec}, not a {SPEC}")
    reader.number("I")  # the revision says how the vocabulary is kept
    variables = dict(reader.variable() for _ in range(_count(reader)))
    for _ in range(_count(reader)):
        alias, name = reader.text(), reader.text()
        if name not in variables:
            raise ModelUnreadable(f"{path}: {alias} stands for {name}, which is missing")
        variables[alias] = variables[name]
    if reader.offset != len(data):
        raise ModelUnreadable(f"{path}: {len(data) - reader.offset} bytes behind the end")
    quantised = any(value.ndim and value.dtype.kind == "i" for value in variables.values())
    return dequantize(variables, str(path)), quantised


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


def dims_of(variables: dict[str, Array], source: str) -> WhisperDims:
    """The dimensions, from shapes and settings."""

    def shape(name: str, rank: int) -> tuple[int, ...]:
        value = variables.get(name)
        if value is None or value.ndim != rank:
            raise WeightsMismatch(f"{source}: {name} is missing or has another rank than {rank}")
        return value.shape

    def layers(side: str) -> int:
        parts = (name.split("/") for name in variables)
        numbers = [
            int(match[1]) for p in parts if p[0] == side and len(p) > 1 and (match := is_layer_name(p[1]))
        ]
        return 1 + max(numbers, default=-1)

    tokens, width = shape("decoder/embeddings/weight", 2)
    audio = shape("encoder/position_encodings/encodings", 2)
    text = shape("decoder/position_encodings/encodings", 2)
    heads = {}
    for side in ("encoder", "decoder"):
        shape(f"{side}/num_heads", 0)
        heads[side] = int(np.asarray(variables[f"{side}/num_heads"]).astype(np.int64))
    return check_dims(
        WhisperDims(
            n_mels=shape("encoder/conv1/weight", 3)[1],
            n_audio_ctx=audio[0],
            n_audio_state=audio[1],
            n_audio_head=heads["encoder"],
            n_audio_layer=layers("encoder"),
            n_vocab=tokens,
            n_text_ctx=text[0],
            n_text_state=width,
            n_text_head=heads["decoder"],
            n_text_layer=layers("decoder"),
        ),
        source,
    )


def openai_names(variables: dict[str, Array], source: str) -> dict[str, Array]:
    """Fused projections taken apart, under OpenAI's names. Raises WeightsMismatch for what has no such
    name."""
    out: dict[str, Array] = {}
    for name, value in variables.items():
        if value.ndim == 0 or name == TIED:
            continue
        try:
            out.update(_rename_tensor(name, value, source))
        except (KeyError, IndexError, ValueError) as cause:
            raise WeightsMismatch(
                f"{source}: {name} {list(value.shape)} is no tensor of a Whisper"
            ) from cause
    return out


def _rename_tensor(name: str, value: Array, source: str) -> dict[str, Array]:
    side, *path, last = name.split("/")
    kind = KINDS[last]
    if last == "encodings":
        return {f"{side}.positional_embedding": value}
    layer = is_layer_name(path[0])
    if layer is None:
        return {f"{TOP_NAMES[side, path[0]]}.{kind}": value}
    prefix, block = f"{side}.blocks.{layer[1]}", BLOCKS[path[1]]
    if path[2] == "layer_norm":
        return {f"{prefix}.{block}_ln.{kind}": value}
    pieces = FUSED[block, int(path[2].removeprefix("linear_"))]
    out = {}
    for piece, part in zip(pieces, np.split(value, len(pieces)), strict=True):
        if piece == "key" and kind == "bias":
            if np.any(part):
                raise WeightsMismatch(f"{source}: {name} has a bias on keys, which Whisper has not")
            continue
        out[f"{prefix}.{block}.{piece}.{kind}"] = part
    return out
