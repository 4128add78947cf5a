"""What a table's column has to know beyond the Python type of its field.

A record is a frozen dataclass, and its fields are the columns of its table (`spool.tables.record`). These are
the types of fields whose columns have a limit; a plain `str` is text of any length, an `int` has 32 bits.
"""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Length:
    """The most characters of a text."""

    characters: int


@dataclass(frozen=True, slots=True)
class Bits:
    """The size of an integer."""

    bits: int


@dataclass(frozen=True, slots=True)
class NullIfEmpty:
    """JSON that is NULL for an empty value, and NULL read as the field's default."""


@dataclass(frozen=True, slots=True)
class Unprefixed:
    """A record whose fields are columns under their own names."""


@dataclass(frozen=True, slots=True)
class Called:
    """The name of the column, if it is not the field's."""

    name: str


@dataclass(frozen=True, slots=True)
class Unstored:
    """A field without a column. It has a default."""


Id = Annotated[str, Length(40)]
Name = Annotated[str, Length(200)]
ShortName = Annotated[str, Length(64)]
Label = Annotated[str, Length(16)]
QueueName = Annotated[str, Length(1000)]
Sha256 = Annotated[str, Length(64)]
BigInt = Annotated[int, Bits(64)]
SmallInt = Annotated[int, Bits(16)]
