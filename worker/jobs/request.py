"""The engine's request for each chunk of a job: its options, and what they name on this machine.

Knows names and where their files are; does not open them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from spool.domain.options import JobOptions, Options
from spool.domain.search.fields import SearchFields, UtteranceFields
from spool.errors import UnknownModel
from spool.settings import Settings
from spool.store.database import Database
from spool.store.jobs import phrases_of
from worker.live.feed import LiveFeed
from worker.models.requests import DecodeRequest, SearchOptions


def request_of(options: Options, phrases: tuple[str, ...] = (), boost: float = 1.0) -> DecodeRequest:
    """The engine's request for these options, in which a language model, a graph and a second model are named
    by their paths. Not yet checked against the model."""
    live = options.live if isinstance(options, JobOptions) else None
    rescore = options.rescore
    search = SearchOptions.model_construct(
        **_fields_of(options, SearchFields),
        reader=None if rescore is None else rescore.model,
        att_context=None if live is None else live.att_context,
    )
    return DecodeRequest.model_construct(
        **_fields_of(options, UtteranceFields),
        # What is to be prepared is a session; each of its feeds asks for itself.
        step=None if live is None else LiveFeed("", 0),
        phrases=phrases,
        boost=boost,
        reader_weight=0.0 if rescore is None else rescore.weight,
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
    places: dict[str, Any] = {}
    if (asked := options.language_model) is not None:
        known = settings.language_models
        places["language_model"] = str(language_model or _path_of(asked, known, f"{name}: no language model"))
    if (graph := options.graph) is not None:
        path = _path_of(graph.name, settings.graphs, f"{name}: no graph")
        places["graph"] = graph.model_copy(update={"name": path})
    if (second := options.rescore) is not None:
        path = str(reader or _path_of(second.model, settings.models, f"{name}: no model to rescore with"))
        places["rescore"] = second.model_copy(update={"model": path})
    weight = 1.0 if options.boost is None else options.boost.weight
    return request_of(options.model_copy(update=places), phrases, weight)


def _fields_of(options: Options, part: type[BaseModel]) -> dict[str, Any]:
    return {name: getattr(options, name) for name in part.model_fields}


def _path_of(name: str, places: Mapping[str, str], sentence: str) -> str:
    """Where the file of this name is. Raises UnknownModel."""
    if name in places:
        return places[name]
    known = ", ".join(sorted(places)) or "none"
    raise UnknownModel(f"{sentence} {name!r} here; this worker knows {known}.")
