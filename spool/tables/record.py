"""A table from the frozen dataclass that its rows are read as: each field is declared once.

The type of a field decides the column's type, `| None` that it may be NULL, and a default that is a number or
a truth value is the column's default. A field that is itself a dataclass becomes several columns (without
defaults), named `field_name` unless it is `Unprefixed`; a pydantic model or a collection becomes JSON.
Columns that only queries need, constraints and indexes are given beside the record.
"""

import dataclasses
import enum
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache, partial
from itertools import compress
from operator import not_
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
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

from spool.domain.columns import Bits, Called, Length, NullIfEmpty, Unprefixed, Unstored
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
    column: str
    kind: Any
    notes: tuple[object, ...]
    nullable: bool
    default: object
    record: Any
    """The dataclass whose fields are columns of this table too; None for a field with one column."""
    prefix: str
    """What the names of these columns begin with."""
    is_sparse: bool
    """Whether an empty value is NULL."""
    is_json: bool
    """Whether it is JSON, and in Python something else than lists and dictionaries."""


def table_of(name: str, record: type, *items: SchemaItem, key: Sequence[str] = ("id",)) -> Table:
    """The table of these records, with other columns, constraints and indexes. Its primary key are the fields
    `key`, after those of the other columns that belong to it."""
    is_key = [isinstance(item, Column) and item.primary_key for item in items]
    return Table(
        name,
        metadata,
        *compress(items, is_key),
        *columns_of(record, key=key),
        *compress(items, map(not_, is_key)),
    )


def columns_of(record: type, *, key: Sequence[str] = (), prefix: str | None = None) -> list[Column[Any]]:
    """A column for each field of the record; `prefix`: of a record that is part of another."""
    columns: list[Column[Any]] = []
    for field in fields_of(record):
        if field.record is not None:
            columns += columns_of(field.record, key=key, prefix=field.prefix)
        else:
            name = (prefix or "") + field.column
            is_key = name in key
            facts = {"primary_key": True, "autoincrement": False} if is_key else {"nullable": field.nullable}
            default = _server_default(field) if prefix is None else None
            columns.append(Column(name, _type_of(field), server_default=default, **facts))  # type: ignore[arg-type]
    return columns


@lru_cache
def fields_of(record: type[Any]) -> tuple[Field, ...]:
    """The stored fields of the record, those of the classes it inherits from first."""
    hints = get_type_hints(record, include_extras=True)
    found = []
    for each in dataclasses.fields(record):
        kind, nullable = hints[each.name], False
        notes: Sequence[object] = ()
        if get_origin(kind) in {Union, types.UnionType}:
            kind, nullable = next(one for one in get_args(kind) if one is not type(None)), True
        if get_origin(kind) is Annotated:
            kind, *notes = get_args(kind)
        if Unstored() in notes:
            continue
        column = next((note.name for note in notes if isinstance(note, Called)), each.name)
        default = None if each.default is dataclasses.MISSING else each.default
        is_sparse = NullIfEmpty() in notes
        part = kind if dataclasses.is_dataclass(kind) and not is_sparse else None
        prefix = "" if Unprefixed() in notes else f"{each.name}_"
        is_json = part is None and not _is_plain(kind)
        facts = (tuple(notes), nullable or is_sparse, default, part, prefix, is_sparse, is_json)
        found.append(Field(each.name, column, kind, *facts))
    return tuple(found)


def values_of(instance: object, record: type) -> dict[str, Any]:
    """The values of an instance for the columns of `record`, which it has or inherits the fields of."""
    return columns_with(record, {field.name: getattr(instance, field.name) for field in fields_of(record)})


def columns_with(record: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the given fields of the record for its columns."""
    values: dict[str, Any] = {}
    for field in fields_of(record):
        if field.name not in given:
            continue
        value = given[field.name]
        if field.record is not None:
            values |= {field.prefix + name: own for name, own in values_of(value, field.record).items()}
        elif isinstance(value, BaseModel):
            values[field.column] = value.model_dump(mode="json")
        elif field.is_sparse and not value:
            values[field.column] = None
        elif value is not None and field.is_json:
            values[field.column] = _adapter(field.kind).dump_python(value, mode="json")
        else:
            values[field.column] = value.value if isinstance(value, enum.Enum) else value
    return values


def reader_of(record: type[Record]) -> Callable[[Row[Any] | Mapping[str, Any]], Record]:
    """What makes the record of a row that has its columns, and perhaps others."""
    parts: list[tuple[str, Any, list[tuple[str, str]]]] = []
    columns = [column.name for column in columns_of(record)]
    for field in fields_of(record):  # type: ignore[arg-type]
        if field.record is not None:
            names = [(own.name, field.prefix + own.column) for own in fields_of(field.record)]
            parts.append((field.name, _maker_of(field.record), names))
    make = _maker_of(record)

    def read(row: Row[Any] | Mapping[str, Any]) -> Record:
        values = dict(row._mapping if isinstance(row, Row) else row)
        if len(values) > len(columns):
            values = {name: values[name] for name in columns}
        for name, make_part, names in parts:
            values[name] = make_part(**{own: values.pop(column) for own, column in names})
        return make(**values)

    return read


def _maker_of(record: type[Record]) -> Callable[..., Record]:
    """What makes the record of its fields' values, as the database gives them."""
    fields = fields_of(record)  # type: ignore[arg-type]
    conversions = [(field.name, convert) for field in fields if (convert := _conversion(field)) is not None]
    defaults = [field.name for field in fields if field.is_sparse]
    if not conversions and not defaults:
        return record

    def make(**values: Any) -> Record:  # noqa: ANN401 - any record's
        for name, convert in conversions:
            if values[name] is not None:
                values[name] = convert(values[name])
        for name in defaults:
            if values[name] is None:
                del values[name]
        return record(**values)

    return make


def _conversion(field: Field) -> Callable[[Any], Any] | None:
    """From what the database gives to what the field holds; None if that is the same."""
    if field.record is not None:
        return None
    if isinstance(field.kind, type) and issubclass(field.kind, enum.Enum):
        return field.kind
    return partial(_read_json, field.kind) if field.is_json else None


def _read_json(kind: Any, value: Any) -> Any:  # noqa: ANN401 - any type
    return _adapter(kind).validate_python(value)


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - any type
    return TypeAdapter(kind)


def _is_plain(kind: Any) -> bool:  # noqa: ANN401 - any type
    if get_origin(kind) in {list, dict}:
        return all(map(_is_plain, get_args(kind)))
    if isinstance(kind, type) and not get_args(kind):
        is_model = dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel)
        return not is_model
    return get_origin(kind) is Literal or kind is Any


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
