"""Which model hears phones, and the dictionary beside it."""

from functools import cache, lru_cache
from pathlib import Path

from spool.catalogue import installed_path
from spool.errors import SpoolError, UnknownModel
from spool.sounds.lexicon import Lexicon, read_lexicon

DEFAULT_WITNESS = "hama-phonemes"
DICTIONARY = "cmudict-en-us.dict"


@lru_cache(maxsize=2)
def lexicon_of(folder: Path) -> Lexicon:
    """The dictionary in a model's folder. Raises UnknownModel if there is none, ModelUnreadable."""
    path = folder / DICTIONARY
    if not path.is_file():
        raise UnknownModel(f"{folder}: the witness needs {DICTIONARY} beside its model, and there is none")
    return read_lexicon(path)


def installed_lexicon() -> Lexicon | None:
    """The dictionary on this machine, if the model was fetched here."""
    try:
        return _installed()
    except SpoolError:
        return None


@cache  # which keeps no failure, so that a model that is fetched later is found
def _installed() -> Lexicon:
    return lexicon_of(installed_path(DEFAULT_WITNESS))
