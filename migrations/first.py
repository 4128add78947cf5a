"""The statements of the first revision, in a file that is written from `spool.tables`.

Run `python -m migrations first` after a change of the tables until the first release; from then on the file
stays as it is, and every change is a revision of its own.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from sqlalchemy import Executable, create_mock_engine
from sqlalchemy.sql.ddl import ExecutableDDLElement

from spool.tables import metadata

DIALECTS = ("sqlite", "postgresql")
_FILE = Path(__file__).parent / "versions" / "0001_first.sql"
_TITLE = "-- {}\n\n"
_END = ";\n\n"
_CREATES = re.compile(r"CREATE (?:VIRTUAL )?TABLE (\w+)")


def statements(dialect: str) -> list[str]:
    """What the file says for this database."""
    _, _, text = _FILE.read_text(encoding="utf-8").partition(_TITLE.format(dialect))
    return text.partition(_TITLE[:3])[0].strip().removesuffix(_END.strip()).split(_END)


def tables(dialect: str) -> list[str]:
    """The tables in the order in which they are created."""
    found = map(_CREATES.match, statements(dialect))
    return [match[1] for match in found if match is not None]


def write() -> None:
    """Write the file anew."""
    texts = [
        _TITLE.format(dialect) + "".join(statement + _END for statement in _compile_creation(dialect))
        for dialect in DIALECTS
    ]
    _FILE.write_text("".join(texts).rstrip() + "\n", encoding="utf-8")


def _compile_creation(dialect: str) -> Iterator[str]:
    created: list[str] = []

    def note(statement: Executable, *_: object, **__: object) -> None:
        assert isinstance(statement, ExecutableDDLElement)
        lines = str(statement.compile(dialect=engine.dialect)).strip().splitlines()
        created.append("\n".join(line.rstrip().replace("\t", "    ") for line in lines if line.strip()))

    url = "postgresql+psycopg://" if dialect == "postgresql" else "sqlite://"
    engine = create_mock_engine(url, note)
    metadata.create_all(engine, checkfirst=False)
    # A table's indexes are a set: sort them, so that the file changes only where the tables do.
    for is_index, group in groupby(created, lambda statement: " INDEX " in statement.split("(")[0]):
        together = list(group)
        yield from sorted(together) if is_index else together
