"""Which model listens, and the dictionary beside it. No MLX."""

import hashlib
from functools import lru_cache
from pathlib import Path

from spool.errors import UnknownModel
from spool.sounds.lexicon import Lexicon, read_lexicon

DEFAULT_WITNESS = "hama-phonemes"
DICTIONARY = "cmudict-en-us.dict"
VERSION = 1
"""Raised with every change after which findings may differ."""


def witness_mark(digest: str, *inputs: str) -> str:
    """The fingerprint of what a model of this digest (`ModelInfo.digest`) finds about the inputs."""
    return hashlib.sha256("\n".join([f"witness {VERSION}", digest, *inputs]).encode()).hexdigest()


@lru_cache(maxsize=2)
def lexicon_of(folder: Path) -> Lexicon:
    """The dictionary in a model's folder. Raises UnknownModel if there is none, ModelUnreadable."""
    path = folder / DICTIONARY
    if not path.is_file():
        raise UnknownModel(f"{folder}: the witness needs {DICTIONARY} beside its model, and there is none")
    return read_lexicon(path)
