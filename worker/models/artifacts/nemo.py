"""Reads a `.nemo` file: a tar of `model_config.yaml`, `model_weights.ckpt` (a checkpoint of PyTorch's) and a
tokenizer.

Nothing is ever extracted to a path that the archive chooses. Knows no names of weights.
"""

import io
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spool.errors import ModelUnreadable
from worker.models.artifacts.nemo_files import BROKEN, CONFIG_NAME, SMALL_MEMBER_BYTES_MAX, members, reason
from worker.models.artifacts.torch_checkpoint import TorchCheckpoint

WEIGHTS_NAME = "model_weights.ckpt"
TOKENIZER_SUFFIX = "tokenizer.model"
EXPANSION_MAX = 8  # of a compressed archive: weights hardly compress, a bomb does
COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class NemoArchive:
    """An open `.nemo`: the configuration's text, the small files by name, and the weights."""

    config: bytes
    files: Mapping[str, bytes]
    weights: TorchCheckpoint

    def tokenizer(self, named: str | None) -> tuple[str, bytes] | None:
        """The sentencepiece model that the configuration names (`nemo:NAME`), else the only one there is."""
        wanted = (named or "").removeprefix("nemo:")
        if wanted in self.files:
            return wanted, self.files[wanted]
        models = [name for name in sorted(self.files) if name.endswith(TOKENIZER_SUFFIX)]
        return (models[0], self.files[models[0]]) if len(models) == 1 else None


@contextmanager
def open_nemo(path: Path, part: str = "") -> Iterator[NemoArchive]:
    """Opens a `.nemo`, compressed or not. part: what stands before the names of a second model's files in
    it. Raises ModelUnreadable naming the file and the cause."""
    config = part + CONFIG_NAME
    with ExitStack() as stack:
        try:
            archive = stack.enter_context(tarfile.open(path, "r:*"))
            weights = stack.enter_context(_weights_file(archive, path, part + WEIGHTS_NAME))
            files = _small_files(archive)
            if config not in files:
                raise ModelUnreadable(f"it holds no {config}")
            opened = NemoArchive(files[config], files, TorchCheckpoint(weights, str(path)))
        except ModelUnreadable as cause:
            raise ModelUnreadable(f"{path}: {cause.message}") from cause
        except BROKEN as cause:
            raise ModelUnreadable(f"{path}: not a readable .nemo file: {reason(cause)}") from cause
        yield opened


def _small_files(archive: tarfile.TarFile) -> dict[str, bytes]:
    files = {}
    for name, member in members(archive):
        if name.endswith((CONFIG_NAME, TOKENIZER_SUFFIX)):
            if member.size > SMALL_MEMBER_BYTES_MAX:
                raise ModelUnreadable(f"{name} has {member.size} bytes, more than {SMALL_MEMBER_BYTES_MAX}")
            file = archive.extractfile(member)
            files[name] = file.read() if file else b""
    return files


@contextmanager
def _weights_file(archive: tarfile.TarFile, path: Path, weights: str) -> Iterator[IO[bytes]]:
    """The weights as a seekable file: in place, or copied to a nameless one where the archive is
    compressed."""
    member = next((member for name, member in members(archive) if name == weights), None)
    source = archive.extractfile(member) if member else None
    if member is None or source is None:
        raise ModelUnreadable(f"it holds no {weights}")
    if isinstance(archive.fileobj, io.BufferedReader):
        yield source
        return
    limit = EXPANSION_MAX * path.stat().st_size
    if member.size > limit:
        raise ModelUnreadable(f"{weights} expands to {member.size} bytes, more than a model does")
    with tempfile.TemporaryFile() as copy:
        while block := source.read(COPY_BYTES):
            copy.write(block)
        copy.seek(0)
        yield copy
