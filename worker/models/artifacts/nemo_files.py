"""The small files of a `.nemo`, a tar: `model_config.yaml` and what else a model needs beside its weights.

Nothing is ever extracted to a path that the archive chooses. Needs no MLX: processes without a model read
configurations too. The weights are the business of `worker.models.artifacts.nemo`.
"""

import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from spool.errors import ModelUnreadable

CONFIG_NAME = "model_config.yaml"
MEMBERS_MAX = 10_000
SMALL_MEMBER_BYTES_MAX = 64 << 20  # configuration and tokenizer

# What a broken or hostile archive, zip or pickle makes Python's own readers raise.
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    pickle.UnpicklingError,
    EOFError,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    RuntimeError,
    MemoryError,
)


def config_of(path: Path) -> bytes:
    """The configuration's text of a `.nemo`. Raises ModelUnreadable naming the file and the cause."""
    try:
        with tarfile.open(path, "r:*") as archive:
            for name, member in members(archive):
                if name == CONFIG_NAME and member.size <= SMALL_MEMBER_BYTES_MAX:
                    file = archive.extractfile(member)
                    return file.read() if file else b""
        raise ModelUnreadable(f"it holds no {CONFIG_NAME}")
    except ModelUnreadable as cause:
        raise ModelUnreadable(f"{path}: {cause.message}") from cause
    except BROKEN as cause:
        raise ModelUnreadable(f"{path}: not a readable .nemo file: {reason(cause)}") from cause


def reason(cause: BaseException) -> str:
    """Why, in one line: `tarfile` writes a line for each compression that it tried."""
    first, _, more = str(cause).partition("\n")
    return first.rstrip(": ") if more else str(cause)


def read_nemo_config(path: Path) -> bytes | None:
    """The configuration's text of a `.nemo`; None where it is none, or is broken."""
    try:
        return config_of(path)
    except ModelUnreadable:
        return None


def members(archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Plain files at the top of the archive; links, devices and anything in a folder are passed over."""
    for count, member in enumerate(archive):
        if count >= MEMBERS_MAX:
            raise ModelUnreadable(f"it holds more than {MEMBERS_MAX} files")
        name = member.name.removeprefix("./")
        if member.isfile() and "/" not in name:
            yield name, member
