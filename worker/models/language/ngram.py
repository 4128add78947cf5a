"""An n-gram language model as a file that reads other models' hypotheses: an ARPA file over their tokens.

Knows the file's name, hash and size. What its words are is for the model whose tokens they should be, so its
n-grams are read elsewhere (`worker.decode.fusion`), once that is known.
"""

import hashlib
from pathlib import Path

from spool.domain.search.language_model import HEAD_BYTES, read_counts
from spool.errors import InvalidRequest, ModelUnreadable
from worker.models.base import ModelInfo

MODEL_TYPE = "ngram_language_model"
_BYTES_A_GRAM = 60


def is_arpa(path: Path) -> bool:
    """Whether the file says what an ARPA file begins with."""
    try:
        with path.open("rb") as file:
            return b"\\data\\" in file.read(HEAD_BYTES)
    except OSError:
        return False


class NgramLanguageModel:
    """One file. `size` of its `info` is an estimate of its n-grams in memory."""

    def __init__(self, path: Path, name: str) -> None:
        """Raises ModelUnreadable."""
        try:
            with path.open("rb") as file:
                head = file.read(HEAD_BYTES)
                file.seek(max(0, path.stat().st_size - 64))
                grams = read_counts(head, file.read())[1]
                file.seek(0)
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ModelUnreadable(f"{path}: the language model cannot be read: {error.strerror}") from error
        except InvalidRequest as error:
            raise ModelUnreadable(f"{path}: {error.message}") from error
        self.path = path
        self.info = ModelInfo(
            name=name,
            sha256=sha256,
            size=grams * _BYTES_A_GRAM,
            dtype="float32",
            files={"arpa": sha256},
            family=MODEL_TYPE,
        )
