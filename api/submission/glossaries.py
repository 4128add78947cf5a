"""Turns requests into versions of a glossary, and resolves the glossary or language model that a job names.

All jobs of one request get the same version.
"""

from collections.abc import Container, Mapping
from typing import Any

from sqlalchemy import Connection

from spool.domain.search.glossary import check_phrases, parse_reference, read_glossary_csv, read_glossary_text
from spool.domain.search.phrases import Boost, PhraseList
from spool.errors import Conflict, InvalidRequest, NotFound
from spool.schemas.glossaries import GlossaryRequest
from spool.store.archive.glossaries import add_version, get_glossary
from spool.store.archive.language_models import get_language_model
from spool.store.archive.suggestions import add_suggestions
from spool.store.database import Database
from spool.store.jobs import phrases_of
from spool.tables.glossaries import Glossary


def read_phrases(body: GlossaryRequest) -> PhraseList:
    """The phrases of the request. Raises InvalidRequest, which names the line."""
    try:
        if body.csv is not None:
            return read_glossary_csv(body.csv)
        return check_phrases(body.phrases or ()) if body.text is None else read_glossary_text(body.text)
    except InvalidRequest as error:
        field = next(name for name in ("csv", "text", "phrases") if getattr(body, name) is not None)
        raise InvalidRequest(f"{field}: {error.message}") from None


def add_requested(database: Database, project: str, body: GlossaryRequest, author: str) -> Glossary:
    """The version that the request adds, or the latest one if it has the same phrases. Raises InvalidRequest
    and Conflict."""
    asked = read_phrases(body)
    weight, auto_add_after = body.weight, body.auto_add_after
    with database.begin() as tx:
        if body.extend and (latest := _find_latest(tx, project, body.name)) is not None:
            asked = check_phrases([*phrases_of(tx, latest.sha256), *asked.phrases])
            weight = weight if "weight" in body.model_fields_set else latest.weight
            given = "auto_add_after" in body.model_fields_set
            auto_add_after = auto_add_after if given else latest.auto_add_after
        return add_version(tx, project, body.name, asked, weight, author, auto_add_after)


def _find_latest(tx: Connection, project: str, name: str) -> Glossary | None:
    try:
        return get_glossary(tx, project, name)
    except NotFound:
        return None


class GlossaryLookup:
    """The glossaries of one project, as one request sees them."""

    def __init__(self, database: Database, project: str) -> None:
        """Makes no query yet."""
        self._database = database
        self._project = project
        self._found: dict[str, Boost] = {}

    def with_phrases(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options with the phrases of the glossary that their `boost` names, if any. An invalid boost is
        left as it is, to be refused with the other options. Raises InvalidRequest for an unknown glossary."""
        boost = options.get("boost")
        if not isinstance(boost, Mapping) or not isinstance(boost.get("glossary"), str):
            return options
        own = boost.get("phrases", [])
        if not isinstance(own, list):
            return options
        named = self._boost(boost["glossary"])
        if not own and boost.keys() == {"glossary"}:
            return {**options, "boost": named}  # already validated, which matters for a million lines
        merged = {
            "weight": named.weight,
            **boost,
            "phrases": [*own, *named.phrases],
            "glossary": named.glossary,
        }
        return {**options, "boost": merged}

    def _boost(self, reference: str) -> Boost:
        if reference not in self._found:
            try:
                name, version = parse_reference(reference)
                with self._database.read() as tx:
                    glossary = get_glossary(tx, self._project, name, version)
                if version is None:
                    glossary = self._extend(glossary)
                with self._database.read() as tx:
                    phrases = phrases_of(tx, glossary.sha256)
            except (InvalidRequest, NotFound) as error:
                raise InvalidRequest(f"options: boost.glossary: {error.message}") from None
            self._found[reference] = Boost(
                phrases=phrases, weight=glossary.weight, glossary=glossary.reference
            )
        return self._found[reference]

    def _extend(self, glossary: Glossary) -> Glossary:
        """The version with names from later corrections, if the glossary adds them automatically."""
        if glossary.auto_add_after is None:
            return glossary
        try:
            with self._database.begin() as tx:
                return add_suggestions(tx, glossary)
        except Conflict:  # another request adds a version, or there are too many
            return glossary


class LanguageModelLookup:
    """The language models of one project, as one request sees them; the settings' own come first."""

    def __init__(self, database: Database, configured: Container[str], project: str) -> None:
        """Makes no query yet."""
        self._database = database
        self._configured = configured
        self._project = project
        self._found: dict[str, str | None] = {}

    @property
    def versions(self) -> list[str]:
        """The models named so far, as jobs show them."""
        return [reference for reference in self._found.values() if reference is not None]

    def with_version(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options with the version of the language model that they name, if it is one of the project's;
        anything else is left as it is, to be refused with the other options. A language model that rescores
        must be named with its version: there, a bare name is that of a model."""
        reads = options.get("rescore")
        if isinstance(reads, Mapping) and isinstance(reader := reads.get("model"), str) and "@" in reader:
            self._look(reader)
        named = options.get("language_model")
        if not isinstance(named, str) or named in self._configured:
            return options
        return {**options, "language_model": self._look(named) or named}

    def _look(self, named: str) -> str | None:
        if named not in self._found:
            self._found[named] = self._reference(named)
        return self._found[named]

    def _reference(self, named: str) -> str | None:
        try:
            name, version = parse_reference(named)
            with self._database.read() as tx:
                return get_language_model(tx, self._project, name, version).reference
        except (InvalidRequest, NotFound):
            return None
