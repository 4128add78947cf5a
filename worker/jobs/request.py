"""The engine's request for each chunk of a job: its options, and what they name on this machine.

Knows names and where their files are; does not open them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from spool.domain.options import JobOptions, Options
from spool.errors import UnknownModel
from spool.settings import Settings
from spool.store.database import Database
from spool.store.jobs import phrases_of
from worker.live.feed import LiveFeed
from worker.models.requests import DecodeRequest, SearchOptions

_OTHER = frozenset({"graph", "context"})
"""Names that mean something else in the engine: the path of a graph, and the tokens before an utterance."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the options name, on this machine: phrases, and paths of files."""

    phrases: tuple[str, ...] = ()
    boost: float = 1.0
    lm: str | None = None
    graph: str | None = None
    reader: str | None = None


def request_of(options: Options, resolved: Resolved) -> DecodeRequest:
    """The engine's request for these options. Not yet checked against the model."""
    live = options.live if isinstance(options, JobOptions) else None
    search = SearchOptions(
        **_fields_of(options, SearchOptions)
        | _graph_fields(options)
        | {
            "graph": resolved.graph,
            "reader": resolved.reader,
            "att_context": None if live is None else live.att_context,
        }
    )
    return DecodeRequest(
        **_fields_of(options, DecodeRequest),
        # What is to be prepared is a session; each of its feeds asks for itself.
        step=None if live is None else LiveFeed("", 0),
        phrases=resolved.phrases,
        boost=resolved.boost,
        lm=resolved.lm,
        reader_weight=0.0 if options.rescore is None else options.rescore.weight,
        carries=options.context == "job",
        search=search,
    )


def job_request_of(
    options: JobOptions,
    settings: Settings,
    db: Database,
    name: str,
    language_model: Path | None = None,
    reader: Path | None = None,
) -> DecodeRequest:
    """The request of the job called `name`. language_model, reader: the files of language models of its
    project. Raises UnknownModel, and NotFound if its phrases are gone."""
    phrases: tuple[str, ...] = ()
    if options.boost is not None:
        with db.read() as tx:
            phrases = phrases_of(tx, options.boost.sha256)
    return resolve_files(options, settings, name, phrases, language_model, reader)


def resolve_files(
    options: JobOptions,
    settings: Settings,
    name: str,
    phrases: tuple[str, ...] = (),
    language_model: Path | None = None,
    reader: Path | None = None,
) -> DecodeRequest:
    """As `job_request_of`, with the phrases at hand. Raises UnknownModel."""
    own_lm, own_reader = (None if file is None else str(file) for file in (language_model, reader))
    graph = None if options.graph is None else options.graph.name
    second = None if options.rescore is None else options.rescore.model
    resolved = Resolved(
        phrases=phrases,
        boost=1.0 if options.boost is None else options.boost.weight,
        lm=own_lm or _path_of(options.language_model, settings.language_models, f"{name}: no language model"),
        graph=_path_of(graph, settings.graphs, f"{name}: no graph"),
        reader=own_reader or _path_of(second, settings.models, f"{name}: no model to rescore with"),
    )
    return request_of(options, resolved)


def _fields_of(options: Options, record: type[Any]) -> dict[str, Any]:
    """The job's options that a record of the engine has too, by name."""
    return {
        each.name: getattr(options, each.name)
        for each in fields(record)
        if each.name in Options.model_fields and each.name not in _OTHER
    }


def _graph_fields(options: Options) -> dict[str, Any]:
    """How the graph is searched, as the engine calls it."""
    if options.graph is None:
        return {}
    searched = options.graph.model_dump(exclude={"name", "unit_penalty"})
    return searched | {"length_penalty": options.graph.unit_penalty}


def _path_of(name: str | None, places: Mapping[str, str], sentence: str) -> str | None:
    """Where the file of this name is; None for no name. Raises UnknownModel."""
    if name is None or name in places:
        return None if name is None else places[name]
    known = ", ".join(sorted(places)) or "none"
    raise UnknownModel(f"{sentence} {name!r} here; this worker knows {known}.")
