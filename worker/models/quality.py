"""The measured quality of a worker's models, kept in a file of its home: `spool-worker confirm --quality`
writes it, the heartbeat reports it, and the worker's health depends on it. Measures nothing."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from spool.domain.fleet.quality import INT8, Quality, quality_of
from spool.settings import Settings

NAME = "quality.json"
UNMEASURED = "quality-unmeasured.json"


def read_qualities(home: Path) -> dict[str, Quality]:
    """What was measured here, by the model's name in the settings; nothing if the file cannot be read."""
    try:
        stored = json.loads((home / NAME).read_text(encoding="utf-8"))
        return {str(name): quality_of(document) for name, document in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_quality(home: Path, model: str, quality: Quality) -> None:
    """Adds a measurement, in the place of the model's last one. Raises OSError."""
    documents = {name: each.document() for name, each in read_qualities(home).items()}
    documents[model] = quality.document()
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{NAME}.{os.getpid()}"
    path.write_text(json.dumps(documents, indent=2) + "\n", encoding="utf-8")
    path.replace(home / NAME)


def read_unmeasured(home: Path) -> list[str]:
    """The models that an idle worker with this home could not measure."""
    try:
        return [str(name) for name in json.loads((home / UNMEASURED).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def note_unmeasured(home: Path, model: str) -> None:
    """Adds a model to them. Raises OSError."""
    names = sorted({*read_unmeasured(home), model})
    (home / UNMEASURED).write_text(json.dumps(names, indent=2) + "\n", encoding="utf-8")


def list_measured(home: Path, models: Mapping[str, str], least: float) -> dict[str, int | None]:
    """The paths of the models (name to path) whose quality was measured here and is sufficient, and the bits
    of their weights then, None for those that are not quantised."""
    stored = read_qualities(home)
    good = {name: each for name, each in stored.items() if each.qoi >= least}
    return {path: good[name].bits for name, path in models.items() if name in good}


def quality_problem(home: Path, models: Collection[str], least: float) -> str | None:
    """The first of these models whose measured quality here is below `least`. One measured in 8-bit integers
    is no problem: it is used without them."""
    for name, quality in read_qualities(home).items():
        if name in models and quality.qoi < least and quality.dtype != INT8:
            return (
                f"{name} in {quality.precision} transcribes {quality.recordings - quality.no_worse} of "
                f"{quality.recordings} recordings worse than in float32: QoI {quality.qoi:.3f} is below "
                f"SPOOL_MIN_QOI={least:g}; measure again with spool-worker confirm --quality"
            )
    return None


def int8_is_chosen(settings: Settings, path: str) -> bool:
    """Whether the settings choose 8-bit integers for the model at this path; `auto`: where its
    quality in them was measured on this machine and is sufficient."""
    if settings.compute_type != "auto":
        return settings.compute_type == INT8
    names = {path, *(name for name, place in settings.models.items() if place == path)}
    return any(
        quality.dtype == INT8 and quality.qoi >= settings.min_qoi
        for name, quality in read_qualities(settings.home).items()
        if name in names
    )
