"""Glossaries: named, versioned lists of phrases of a project, and how they are read from text and CSV. Pure.

A job names one as `NAME` or `NAME@VERSION` and keeps the phrases of that version, whatever happens to it.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator

from pydantic import TypeAdapter, ValidationError

from spool.domain.search.phrases import MOST_PHRASES, REFERENCE, Phrase, PhraseList, phrase_list
from spool.errors import InvalidRequest

MOST_GLOSSARY_BYTES = 4 * 2**20
"""The most UTF-8 bytes of a file of phrases."""
_PHRASE: TypeAdapter[str] = TypeAdapter(Phrase)


def parse_reference(text: str) -> tuple[str, int | None]:
    """The name, and the version or None for the latest. Raises InvalidRequest."""
    if re.fullmatch(REFERENCE, text) is None:
        raise InvalidRequest("A glossary is named as NAME or NAME@VERSION, such as street-names@3.")
    name, _, version = text.partition("@")
    return name, int(version) if version else None


def read_glossary_text(text: str) -> PhraseList:
    """One phrase per line; empty lines and lines that begin with # are skipped. Raises InvalidRequest."""
    _check_size(text)
    lines = enumerate(text.removeprefix("\ufeff").splitlines(), 1)
    return _check((number, line) for number, line in lines if not line.lstrip().startswith("#"))


def read_glossary_csv(text: str) -> PhraseList:
    """The column `phrase` if the first line has one, else the first column. Raises InvalidRequest with the
    number of a malformed line."""
    _check_size(text)
    return _check(_cells(text.removeprefix("\ufeff")))


def check_phrases(phrases: Iterable[str]) -> PhraseList:
    """The list of these phrases. Raises InvalidRequest with the number of an invalid one."""
    return _check(enumerate(phrases, 1), "phrase")


def _cells(text: str) -> Iterator[tuple[int, str]]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    column = columns = 0
    while True:
        # Where the row begins: one whose quotation mark is never closed ends with the file.
        number = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise InvalidRequest(f"line {number}: is not valid CSV: {error}.") from None
        if row is None:
            return
        if not row:
            continue
        if not columns:
            columns, titles = len(row), [title.strip().casefold() for title in row]
            if "phrase" in titles:
                column = titles.index("phrase")
                continue
        if len(row) != columns:
            raise InvalidRequest(f"line {number}: expected {columns} columns, found {len(row)}.")
        yield number, row[column]


def _check(lines: Iterable[tuple[int, str]], unit: str = "line") -> PhraseList:
    phrases = []
    for number, line in lines:
        try:
            phrases.append(_PHRASE.validate_python(" ".join(line.split())))
        except ValidationError as error:
            reason = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise InvalidRequest(f"{unit} {number}: {reason.removeprefix('Value error, ')}.") from None
    listed = phrase_list(phrases)
    if not listed.phrases:
        raise InvalidRequest("It contains no phrases.")
    if len(listed.phrases) > MOST_PHRASES:
        raise InvalidRequest(f"A glossary has at most {MOST_PHRASES} phrases; this one has more.")
    return listed


def _check_size(text: str) -> None:
    if len(text) > MOST_GLOSSARY_BYTES or len(text.encode(errors="surrogatepass")) > MOST_GLOSSARY_BYTES:
        raise InvalidRequest(f"A file of phrases has at most {MOST_GLOSSARY_BYTES} bytes.")
