"""Reads a checkpoint of PyTorch's without PyTorch: a zip of a pickle that says where each tensor is, and of a
record of plain numbers for each storage.

A pickle can call any function it names, so this one is read by an unpickler that can build tensors and
ordered dicts and nothing else; whatever else it names is refused before it is touched. Knows no names of
weights.
"""

import collections
import io
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import mlx.core as mx
import numpy as np

from spool.errors import ModelUnreadable
from worker.models.artifacts.nemo_files import BROKEN
from worker.models.artifacts.pickle_limits import check_pickle

INDEX_BYTES_MAX = 16 << 20  # the pickle, without the numbers
DIMENSIONS_MAX = 64  # as in PyTorch


class Numbers(NamedTuple):
    """How the numbers of a storage are written, little endian."""

    dtype: str
    is_bfloat16: bool = False


STORAGES = {
    "FloatStorage": Numbers("<f4"),
    "HalfStorage": Numbers("<f2"),
    "BFloat16Storage": Numbers("<u2", is_bfloat16=True),
    "DoubleStorage": Numbers("<f8"),
    "LongStorage": Numbers("<i8"),
    "IntStorage": Numbers("<i4"),
    "ShortStorage": Numbers("<i2"),
    "CharStorage": Numbers("<i1"),
    "ByteStorage": Numbers("<u1"),
    "BoolStorage": Numbers("|b1"),
}


class Storage(NamedTuple):
    """One record of the zip: its key, how its numbers are written and how many there are."""

    key: str
    numbers: Numbers
    length: int


class Tensor(NamedTuple):
    """Where a tensor is in its storage; all counted in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _RebuildTensor:
    """Stands for torch._utils._rebuild_tensor_v2. No instance dictionary: a pickle cannot alter it."""

    __slots__ = ()

    def __call__(
        self, storage: object, offset: object, shape: object, stride: object, *_unused: object
    ) -> Tensor:
        if not isinstance(storage, Storage) or not isinstance(offset, int):
            raise pickle.UnpicklingError("a tensor without a storage")
        sizes, steps = _integers(shape), _integers(stride)
        count = int(np.prod(sizes, dtype=object)) if sizes else 1
        last = offset + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
        # A stride of zero could claim any size: no tensor is larger than the numbers it is made of.
        if offset < 0 or count > storage.length or (count and last >= storage.length):
            raise pickle.UnpicklingError(f"a tensor {sizes} reaches beyond its {storage.length} numbers")
        return Tensor(storage, offset, sizes, steps)


class _RebuildParameter:
    """Stands for torch._utils._rebuild_parameter."""

    __slots__ = ()

    def __call__(self, tensor: object, *_unused: object) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise pickle.UnpicklingError("a parameter that is no tensor")
        return tensor


def _integers(values: object) -> tuple[int, ...]:
    if not isinstance(values, tuple) or len(values) > DIMENSIONS_MAX:
        raise pickle.UnpicklingError("a shape that is no tuple of sizes")
    if not all(type(value) is int and value >= 0 for value in values):
        raise pickle.UnpicklingError("a shape that is no tuple of sizes")
    return values


class TensorUnpickler(pickle.Unpickler):
    """Builds tensors, ordered dicts and plain values. Raises ModelUnreadable on any other global."""

    def find_class(self, module: str, name: str) -> object:
        """The few globals that a state dict needs; every other is refused by name."""
        known: dict[tuple[str, str], object] = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _RebuildTensor(),
            ("torch._utils", "_rebuild_parameter"): _RebuildParameter(),
        }
        if (module, name) in known:
            return known[module, name]
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        raise ModelUnreadable(f"the checkpoint's pickle asks for {module}.{name}, which weights do not need")

    def persistent_load(self, pid: object) -> Storage:
        """PyTorch's reference to a storage: ("storage", type, key, location, count)."""
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage"):
            raise pickle.UnpicklingError("an unknown persistent reference")
        _, numbers, key, _, count = pid
        if not (isinstance(numbers, Numbers) and isinstance(key, str) and type(count) is int and count >= 0):
            raise pickle.UnpicklingError("a storage of unknown kind")
        return Storage(key, numbers, count)


class TorchCheckpoint:
    """The tensors of one PyTorch zip, read one at a time. `source` names it in errors; `tensors` is the key
    under which they stand, where they do not stand at the top. others: what stands beside them there."""

    def __init__(self, file: IO[bytes], source: str, tensors: str = "state_dict") -> None:
        self._source = source
        self._zip = zipfile.ZipFile(file)
        indices = [name for name in self._zip.namelist() if name.endswith("/data.pkl")]
        if len(indices) != 1:
            raise ModelUnreadable("the weights are no PyTorch zip (one data.pkl)")
        self._root = indices[0].removesuffix("data.pkl")
        if any(info.compress_type != zipfile.ZIP_STORED for info in self._zip.infolist()):
            raise ModelUnreadable("the weights are compressed inside their zip, which PyTorch never does")
        order = f"{self._root}byteorder"
        if order in self._zip.namelist() and self._record(order, 16).strip() != b"little":
            raise ModelUnreadable("the weights are big endian")
        index = self._record(indices[0], INDEX_BYTES_MAX)
        check_pickle(index)
        state = TensorUnpickler(io.BytesIO(index)).load()
        self._tensors = _read_tensors(state, tensors)
        inner = isinstance(state, Mapping) and isinstance(state.get(tensors), Mapping)
        self.others: Mapping[str, object] = state if inner else {}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor."""
        return {name: tensor.shape for name, tensor in self._tensors.items()}

    def read(self, name: str) -> mx.array:
        """One tensor in the dtype it is stored in (64-bit floats as 32 bit). Raises ModelUnreadable."""
        tensor = self._tensors[name]
        storage = tensor.storage
        dtype = np.dtype(storage.numbers.dtype)
        size = storage.length * dtype.itemsize
        try:
            raw = self._record(f"{self._root}data/{storage.key}", size)
        except (ModelUnreadable, *BROKEN) as cause:
            raise ModelUnreadable(f"{self._source}: {name}: its numbers cannot be read: {cause}") from cause
        if len(raw) != size:
            raise ModelUnreadable(f"{self._source}: {name}: {len(raw)} bytes where {size} are announced")
        flat = np.frombuffer(raw, dtype)[tensor.offset :]
        steps = tuple(step * dtype.itemsize for step in tensor.stride)
        values = np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat, tensor.shape, steps))
        if storage.numbers.is_bfloat16:
            return mx.array(values).view(mx.bfloat16)
        return mx.array(values.astype(np.float32) if dtype == np.float64 else values)

    def _record(self, name: str, limit: int) -> bytes:
        info = self._zip.getinfo(name)
        if info.file_size > limit:
            raise ModelUnreadable(f"{name} has {info.file_size} bytes, more than the {limit} that fit")
        return self._zip.read(info)


def _read_tensors(state: object, key: str) -> dict[str, Tensor]:
    if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
        state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise ModelUnreadable("the checkpoint is no mapping of names to tensors")
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


@contextmanager
def open_checkpoint(path: Path, tensors: str = "state_dict") -> Iterator[TorchCheckpoint]:
    """Opens a file of PyTorch's. Raises ModelUnreadable naming the file and the cause."""
    try:
        with path.open("rb") as file:
            yield TorchCheckpoint(file, str(path), tensors)
    except ModelUnreadable as cause:
        if cause.message.startswith(str(path)):
            raise
        raise ModelUnreadable(f"{path}: {cause.message}") from cause
    except BROKEN as cause:
        raise ModelUnreadable(f"{path}: not a readable checkpoint: {cause}") from cause
