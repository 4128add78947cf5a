"""Finds a model's files: a folder, a single file, a name of the catalogue, or an id on the Hugging Face hub.

Owns where files lie; what they mean is their family's business (`worker.models.registry`).
"""

import re
from pathlib import Path

import huggingface_hub
import mlx.core as mx
import structlog
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from spool import clock
from spool.catalogue import Progress, fetch_model, hold_model, load_catalogue
from spool.errors import UnknownModel
from spool.settings import load_settings
from worker.machine.allocator import return_memory
from worker.models.base import ModelFiles, SpeechModel
from worker.models.compute_type import loading
from worker.models.language.lstm import LstmLanguageModel, is_language_model
from worker.models.language.ngram import NgramLanguageModel, is_arpa
from worker.models.quality import int8_is_chosen
from worker.models.registry import load_files

log = structlog.get_logger(__name__)

TextReader = LstmLanguageModel | NgramLanguageModel
"""What reads hypotheses and hears nothing."""

_LOG_SECONDS = 5.0
HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")
HUB_FILES = [
    *("*.json", "*.jinja", "*.safetensors", "*tokenizer.model"),
    *("weights.npz", "model.bin", "vocabulary.txt", "merges.txt"),
]


def load_model(path: str | Path, dtype: mx.Dtype | None = None, *, int8: bool | None = None) -> SpeechModel:
    """Loads a model in `dtype`; by default 16 bits on a GPU and float32 on a CPU. int8: whether the encoder
    multiplies in 8-bit integers where this CPU can; by default as the settings say, if no dtype is named.

    Raises UnknownModel when nothing is there, ModelUnreadable when its files cannot be read, WeightsMismatch
    when the weights are not those of its configuration.
    """
    loaded = load_reader(path, dtype, int8=int8)
    if isinstance(loaded, TextReader):
        raise UnknownModel(
            f"{path}: a language model transcribes nothing; name it as the model that rescores another's beam"
        )
    return loaded


def load_reader(
    path: str | Path, dtype: mx.Dtype | None = None, *, int8: bool | None = None
) -> SpeechModel | TextReader:
    """As `load_model`, of what may read a model's hypotheses: language models too."""
    files = model_files(path)
    if files.path.is_file() and is_arpa(files.path):
        return NgramLanguageModel(files.path, files.name)
    settings = load_settings()
    with hold_model(str(path), settings):
        if is_language_model(files.config):
            return LstmLanguageModel(files.path, files.config, files.name)
        if int8 is None:
            int8 = dtype is None and int8_is_chosen(settings, str(path))
        with loading(int8=int8):
            loaded = load_files(files, dtype)
            _ = loaded.info  # kept from here on: what its products are computed in is known only now
    mx.clear_cache()
    return_memory()
    return loaded


def model_files(path: str | Path) -> ModelFiles:
    """The files that a path, a name of the catalogue or a hub id names, downloaded where need be.

    Raises UnknownModel, ModelUnavailable, ChecksumMismatch.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        return ModelFiles(place, place.resolve().name)
    if place.is_file():
        return ModelFiles(place, place.stem)
    if load_catalogue().has(str(path)):
        return ModelFiles(Path(fetch_model(str(path), load_settings(), _LogProgress())), str(path))
    if HUB_ID.match(str(path)):
        return ModelFiles(_download(str(path)), str(path))
    raise UnknownModel(
        f"{path}: no folder, no .nemo file, no name of the catalogue (see `spool models list`) and no hub id "
        "of the form owner/name"
    )


class _LogProgress:
    """Logs a download now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        if clock.monotonic() < self._next:
            return
        self._next = clock.monotonic() + _LOG_SECONDS
        log.info("fetching a model", model=progress.name, done=progress.done, total=progress.total)


def _download(hub_id: str) -> Path:
    """The hub's files of a model, from the local cache where they are there already."""
    try:
        return Path(huggingface_hub.snapshot_download(hub_id, allow_patterns=HUB_FILES))
    except HFValidationError as cause:
        raise UnknownModel(f"{hub_id}: no folder, no .nemo file and no hub id: {cause}") from cause
    except LocalEntryNotFoundError as cause:
        raise UnknownModel(f"{hub_id}: not in the local cache, and the hub cannot be reached") from cause
    except (HfHubHTTPError, OSError) as cause:
        reason = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
        raise UnknownModel(f"{hub_id}: the hub does not give this model: {reason}") from cause
