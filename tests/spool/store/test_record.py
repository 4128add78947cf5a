"""A table, the reading of its rows and the values of a new row come from one dataclass."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel
from sqlalchemy import Column, MetaData, Table, create_engine, insert, select

from spool.domain import BigInt, Id, Length, NullIfEmpty, SmallInt
from spool.tables.record import columns_of, reader_of, values_of


class Colour(StrEnum):
    RED = "red"


class Options(BaseModel):
    beam: int = 4


@dataclass(frozen=True)
class Place:
    uri: str
    size: BigInt | None = None


@dataclass(frozen=True)
class Asked:
    place: Place
    options: Options
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Thing(Asked):
    id: Id
    colour: Colour
    kind: Literal["a", "b"]
    code: Annotated[str, Length(8)] | None = None
    rank: SmallInt = 3
    share: float = 0.5
    late: bool = False
    places: Annotated[dict[str, Place], NullIfEmpty()] = field(default_factory=dict)
    note: str = ""
    seen_at: datetime | None = None


THING = Thing(
    Place("file:///a", 1 << 40),
    Options(beam=8),
    ("x", "y"),
    id="one",
    colour=Colour.RED,
    kind="b",
    places={"first": Place("file:///b")},
    seen_at=datetime(2026, 1, 2, tzinfo=UTC),
)


def described(column: Column[object]) -> str:
    default = "" if column.server_default is None else f" default {column.server_default.arg}"  # type: ignore[attr-defined]
    return f"{column.type}{'' if column.nullable else ' not null'}{default}"


def test_each_field_is_a_column() -> None:
    assert {column.name: described(column) for column in columns_of(Thing, key=("id",))} == {
        "place_uri": "TEXT not null",
        "place_size": "BIGINT",
        "options": "JSON not null",
        "tags": "JSON",
        "id": "VARCHAR(40) not null",
        "colour": "VARCHAR(16) not null",
        "kind": "VARCHAR(16) not null",
        "code": "VARCHAR(8)",
        "rank": "SMALLINT not null default 3",
        "share": "DOUBLE not null default 0.5",
        "late": "BOOLEAN not null default false",
        "places": "JSON",
        "note": "TEXT not null",
        "seen_at": "DATETIME",
    }


@pytest.mark.parametrize(
    "thing", [THING, Thing(Place("s3://b/k"), Options(), id="two", colour=Colour.RED, kind="a")]
)
def test_a_row_is_read_as_what_was_written(thing: Thing) -> None:
    table = Table("things", MetaData(), *columns_of(Thing, key=("id",)))
    engine = create_engine("sqlite://")
    with engine.begin() as tx:
        table.create(tx)
        tx.execute(insert(table).values(**values_of(thing, Thing)))
        assert reader_of(Thing)(tx.execute(select(table)).one()) == thing


def test_the_values_of_a_part_are_those_of_its_fields() -> None:
    assert values_of(THING, Asked) == {
        "place_uri": "file:///a",
        "place_size": 1 << 40,
        "options": {"beam": 8},
        "tags": ["x", "y"],
    }
