"""Checkpoints as PyTorch writes them, made by hand: any tensor, and any call that a pickle can name."""

import io
import pickle
import zipfile
from typing import Any

from numpy.typing import NDArray


class Call:
    """Pickles as a call of `function` by its name."""

    def __init__(self, module: str, name: str, *arguments: object) -> None:
        self.module, self.name, self.arguments = module, name, arguments

    def opcodes(self) -> bytes:
        packed = b"".join(pickled(argument) for argument in self.arguments)
        return b"c" + f"{self.module}\n{self.name}\n".encode() + b"(" + packed + b"tR"


def pickled(value: object) -> bytes:
    if isinstance(value, Call):
        return value.opcodes()
    if isinstance(value, tuple):
        return b"(" + b"".join(pickled(item) for item in value) + b"t"
    return pickle.dumps(value, protocol=2)[2:-1]


def storage_reference(kind: str, key: str, count: int) -> bytes:
    return (
        b"("
        + pickled("storage")
        + f"ctorch\n{kind}\n".encode()
        + pickled(key)
        + pickled("cpu")
        + pickled(count)
        + b"tQ"
    )


def tensor(
    kind: str, key: str, count: int, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> bytes:
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage_reference(kind, key, count)
        + pickled(offset)
        + pickled(shape)
        + pickled(stride)
        + pickled(False)
        + Call("collections", "OrderedDict").opcodes()
        + b"tR"
    )


Tensor = tuple[str, NDArray[Any], int, tuple[int, ...], tuple[int, ...]]
"""Storage class, values, offset, shape, strides."""


def handmade(tensors: dict[str, Tensor]) -> bytes:
    index = b"\x80\x02}("
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for key, (name, (kind, values, offset, shape, stride)) in enumerate(tensors.items()):
            index += pickled(name) + tensor(kind, str(key), len(values), offset, shape, stride)
            archive.writestr(f"archive/data/{key}", values.tobytes())
        archive.writestr("archive/data.pkl", index + b"u.")
        archive.writestr("archive/byteorder", "little")
    return out.getvalue()
