"""The calls of glossaries and language models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spool.client.base import answer
from spool.client.exchange import Ask, Flow, Upload, read
from spool.schemas.common import ListOf
from spool.schemas.glossaries import GlossaryDetail, GlossaryOut, LanguageModelOut, SuggestionOut

_ALL = "/v1/glossaries"
_MODELS = "/v1/language-models"


def put_glossary(
    name: str,
    *,
    phrases: Sequence[str] | None = None,
    text: str | None = None,
    csv: str | None = None,
    weight: float | None = None,
    extend: bool = False,
    auto_add_after: int | None = None,
    project: str | None = None,
) -> Flow[GlossaryOut]:
    """Add a version of a glossary, from one of `phrases`, `text` (one phrase per line) and `csv`; with
    `extend` it includes the latest version's phrases. With `auto_add_after` names that corrections wrote in
    that many recordings are added automatically. If the latest version has the same phrases, that one is
    returned."""
    values: dict[str, Any] = {"phrases": None if phrases is None else list(phrases), "text": text, "csv": csv}
    values |= {"weight": weight, "auto_add_after": auto_add_after, "extend": extend or None}
    body = {"name": name, "project": project, **values}
    body = {field: value for field, value in body.items() if value is not None}
    return (yield from read(Ask("POST", _ALL, json=body), GlossaryOut))


def glossaries(*, project: str | None = None) -> Flow[list[GlossaryOut]]:
    """The latest version of every glossary, by project and name."""
    return (yield from read(Ask("GET", _ALL, {"project": project}), ListOf[GlossaryOut])).items


def glossary(reference: str, *, project: str | None = None) -> Flow[GlossaryDetail]:
    """`NAME`, the latest version, or `NAME@VERSION`, with its phrases."""
    return (yield from read(Ask("GET", f"{_ALL}/{reference}", {"project": project}), GlossaryDetail))


def glossary_suggestions(
    *, project: str | None = None, glossary: str | None = None, recordings: int = 1, limit: int = 100
) -> Flow[list[SuggestionOut]]:
    """Names that corrections wrote in at least this many recordings, the most frequent first, without those
    in `glossary`."""
    asked = {"project": project, "glossary": glossary, "recordings": recordings, "limit": limit}
    return (yield from read(Ask("GET", "/v1/glossary-suggestions", asked), ListOf[SuggestionOut])).items


def remove_glossary(name: str, *, project: str | None = None) -> Flow[None]:
    """Delete all versions of a glossary. Jobs keep their phrases."""
    yield from answer(Ask("DELETE", f"{_ALL}/{name}", {"project": project}))


def put_language_model(
    name: str, file: Path, *, model: str | None = None, project: str | None = None
) -> Flow[LanguageModelOut]:
    """Add a version of a language model from an ARPA file over the tokens of `model`. If the latest version
    has the same file, that one is returned. Raises OSError for a file that cannot be read."""
    values = {"name": name, "project": project, "model": model}
    request = {field: value for field, value in values.items() if value is not None}
    upload = Upload(request, file, file.name, "application/octet-stream")
    return (yield from read(Ask("POST", _MODELS, upload=upload), LanguageModelOut))


def language_models(*, project: str | None = None) -> Flow[list[LanguageModelOut]]:
    """The latest version of every language model, by project and name."""
    return (yield from read(Ask("GET", _MODELS, {"project": project}), ListOf[LanguageModelOut])).items


def language_model(reference: str, *, project: str | None = None) -> Flow[LanguageModelOut]:
    """`NAME`, the latest version, or `NAME@VERSION`."""
    return (yield from read(Ask("GET", f"{_MODELS}/{reference}", {"project": project}), LanguageModelOut))


def remove_language_model(name: str, *, project: str | None = None) -> Flow[None]:
    """Delete all versions of a language model. Refused while a job that uses it has not ended."""
    yield from answer(Ask("DELETE", f"{_MODELS}/{name}", {"project": project}))
