"""A table from the frozen dataclass that its rows are read as: each field is declared once.

The type of a field decides the column's type, `| None` that it may be NULL, and a default that is a number or
a truth value is the column's default. A field that is itself a dataclass becomes several columns, named
`field_name`; a pydantic model or a collection becomes JSON. Columns that only queries need, constraints and
indexes are given beside the record.
"""

import dataclasses
import enum
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Date,
    Double,
    Integer,
    LargeBinary,
    Row,
    SmallInteger,
    String,
    Table,
    Text,
    false,
    text,
    true,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from spool.domain.columns import Bits, Length
from spool.tables.base import UtcDateTime, metadata

Record = TypeVar("Record")

WORD = String(16)
"""The type of states and kinds, whose values are listed."""
_TYPES: dict[type, TypeEngine[Any]] = {
    str: Text(),
    int: Integer(),
    float: Double(),
    bool: Boolean(),
    bytes: LargeBinary(),
    datetime: UtcDateTime(),
    date: Date(),
}
_INTEGERS: dict[int, TypeEngine[Any]] = {16: SmallInteger(), 64: BigInteger()}


class Field(NamedTuple):
    """A field: its type without `| None` and without what is noted with it."""

    name: str
    kind: Any
    notes: tuple[object, ...]
    nullable: bool
    default: object


def table_of(name: str, record: type, *items: SchemaItem, key: Sequence[str] = ("id",)) -> Table:
    """The table of these records, with other columns, constraints and indexes; `key` is its primary key."""
    return Table(name, metadata, *columns_of(record, key=key), *items)


def columns_of(record: type, *, key: Sequence[str] = (), prefix: str = "") -> list[Column[Any]]:
    """A column for each field of the record."""
    columns: list[Column[Any]] = []
    for field in fields_of(record):
        if dataclasses.is_dataclass(field.kind):
            columns += columns_of(field.kind, prefix=f"{field.name}_")  # type: ignore[arg-type]
        else:
            is_key = field.name in key
            facts = {"primary_key": True, "autoincrement": False} if is_key else {"nullable": field.nullable}
            name = prefix + field.name
            columns.append(Column(name, _type_of(field), server_default=_server_default(field), **facts))  # type: ignore[arg-type]
    return columns


@lru_cache
def fields_of(record: type[Any]) -> tuple[Field, ...]:
    """The fields of the record, those of the classes it inherits from first."""
    hints = get_type_hints(record, include_extras=True)
    found = []
    for each in dataclasses.fields(record):
        kind, nullable = hints[each.name], False
        notes: Sequence[object] = ()
        if get_origin(kind) in {Union, types.UnionType}:
            kind, nullable = next(one for one in get_args(kind) if one is not type(None)), True
        if get_origin(kind) is Annotated:
            kind, *notes = get_args(kind)
        default = None if each.default is dataclasses.MISSING else each.default
        found.append(Field(each.name, kind, tuple(notes), nullable, default))
    return tuple(found)


def values_of(instance: object, record: type) -> dict[str, Any]:
    """The values of an instance for the columns of `record`, which it has or inherits the fields of."""
    values: dict[str, Any] = {}
    for field in fields_of(record):
        value = getattr(instance, field.name)
        if dataclasses.is_dataclass(field.kind):
            values |= {f"{field.name}_{name}": own for name, own in values_of(value, field.kind).items()}  # type: ignore[arg-type]
        elif isinstance(value, BaseModel):
            values[field.name] = value.model_dump(mode="json")
        else:
            values[field.name] = value.value if isinstance(value, enum.Enum) else value
    return values


def reader_of(record: type[Record]) -> Callable[[Row[Any] | Mapping[str, Any]], Record]:
    """What makes the record of a row that has its columns and no others."""
    parts: list[tuple[str, Any, list[tuple[str, str]]]] = []
    conversions: list[tuple[str, Callable[[Any], Any]]] = []
    for field in fields_of(record):  # type: ignore[arg-type]
        if dataclasses.is_dataclass(field.kind):
            names = [(own.name, f"{field.name}_{own.name}") for own in fields_of(field.kind)]  # type: ignore[arg-type]
            parts.append((field.name, field.kind, names))
        elif (convert := _conversion(field.kind)) is not None:
            conversions.append((field.name, convert))

    def read(row: Row[Any] | Mapping[str, Any]) -> Record:
        values = dict(row._mapping if isinstance(row, Row) else row)
        for name, kind, names in parts:
            values[name] = kind(**{own: values.pop(column) for own, column in names})
        for name, convert in conversions:
            if values[name] is not None:
                values[name] = convert(values[name])
        return record(**values)

    return read


def _conversion(kind: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401 - any type
    """From what the database gives to what the field holds; None if that is the same."""
    if get_origin(kind) is tuple:
        return tuple
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_validate
    return kind if isinstance(kind, type) and issubclass(kind, enum.Enum) else None


def _type_of(field: Field) -> TypeEngine[Any]:
    for note in field.notes:
        if isinstance(note, Length):
            return String(note.characters)
        if isinstance(note, Bits):
            return _INTEGERS[note.bits]
    if get_origin(field.kind) is Literal or (
        isinstance(field.kind, type) and issubclass(field.kind, enum.Enum)
    ):
        return WORD
    return _TYPES.get(field.kind) or JSON(none_as_null=field.nullable)


def _server_default(field: Field) -> Any:  # noqa: ANN401 - SQLAlchemy's, of several types
    if isinstance(field.default, bool):
        return true() if field.default else false()
    if isinstance(field.default, int | float):
        return text(f"{field.default:g}" if isinstance(field.default, float) else str(field.default))
    return None
