"""What this worker reports about its models as far as known: family, hash, languages, tasks, precision.

What the catalogue says is known at once, the hash of weights that lie on this machine a little later, and the
rest once the engine has loaded the model. Reads files; loads nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import structlog

from spool import clock
from spool.catalogue import hash_of, installed_path, load_catalogue
from spool.domain.fleet.models import AnnouncedModel
from spool.errors import SpoolError
from spool.settings import Settings
from worker.engine.client import Engine
from worker.engine.model_cache import weights_of
from worker.models.base import ModelInfo

log = structlog.get_logger(__name__)


class Announcement:
    """The facts of all models in `models` (names and where they are). Thread-safe."""

    def __init__(self, models: Mapping[str, str]) -> None:
        self._models = dict(models)
        self._lock = clock.Lock()
        self._facts = {name: _from_catalogue(place) for name, place in models.items()}
        self._stored: dict[str, AnnouncedModel] | None = None

    def start(self) -> None:
        """Hash the weights on this machine, in a thread of its own."""
        clock.Thread(target=self._hash_all, name="worker-announcement", daemon=True).start()

    def facts(self, engine: Engine | None = None) -> dict[str, AnnouncedModel]:
        """The facts known now; `engine` has more about the models that it has loaded."""
        with self._lock:
            known = dict(self._facts)
        if engine is not None:
            infos = {name: engine.find_info(place) for name, place in self._models.items()}
            known |= {name: _from_engine(info, known[name]) for name, info in infos.items() if info}
        return {name: facts for name, facts in known.items() if facts != AnnouncedModel()}

    def find_changes(self, engine: Engine) -> dict[str, AnnouncedModel] | None:
        """The facts if they are not those that were last stored, else None."""
        facts = self.facts(engine)
        return None if facts == self._stored else facts

    def record_stored(self, facts: dict[str, AnnouncedModel] | None) -> None:
        """The worker's row has these facts now; None is no news."""
        self._stored = self._stored if facts is None else facts

    def _hash_all(self) -> None:
        for name, place in self._models.items():
            try:
                files = weights_of(installed_path(place))
                if len(files) != 1:
                    continue
                digest = hash_of(files[0]).sha256
            except (OSError, SpoolError) as error:
                log.info("weights not hashed", model=name, error=str(error))
                continue
            with self._lock:
                self._facts[name] = _with_hash(self._facts[name], digest)


def _from_catalogue(place: str) -> AnnouncedModel:
    catalogue = load_catalogue()
    if Path(place).expanduser().exists() or not catalogue.has(place):
        return AnnouncedModel()
    entry = catalogue.find(place)
    heads = ("ctc",) if "ctc" in entry.decoders else ()
    bits = entry.quantised.bits if entry.quantised else None
    languages, tasks = tuple(sorted(entry.languages)), tuple(sorted(entry.tasks))
    return AnnouncedModel(entry.family, "", languages, tasks, heads=heads, streams=entry.streams, bits=bits)


def _from_engine(info: ModelInfo, before: AnnouncedModel) -> AnnouncedModel:
    return AnnouncedModel(
        info.family or before.family,
        info.sha256,
        info.languages or before.languages,
        info.tasks or before.tasks,
        info.dtype,
        tuple(sorted(info.heads)),
        info.streams,
        info.bits,
        info.size or None,
    )


def _with_hash(facts: AnnouncedModel, digest: str) -> AnnouncedModel:
    return replace(facts, sha256=digest)


def default_model_warning(settings: Settings, fleet_default: str | None) -> str | None:
    """A sentence if this worker's SPOOL_DEFAULT_MODEL is not what jobs without a model get."""
    own = settings.default_model
    if "default_model" not in settings.model_fields_set or own == fleet_default:
        return None
    theirs = "not set" if fleet_default is None else fleet_default
    return f"SPOOL_DEFAULT_MODEL={own} of a worker does not set the fleet's default model, which is {theirs}."
