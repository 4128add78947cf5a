"""What goes over the wire: the shapes of requests and answers, each with an example for the OpenAPI page.

Knows the ground's records and how they look from outside (money as decimal text, times in UTC). Knows neither
routes nor SQL.
"""

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainSerializer


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Project = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Pool = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
WorkerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


def _written_out(value: object) -> object:
    if isinstance(value, str) and value.strip().lstrip("+-").replace(".", "", 1).isdigit():
        raise ValueError("must be written as in 2026-11-20, not as a number")
    return value


# Pydantic would read a number as seconds since 1970.
Day = Annotated[date, BeforeValidator(_written_out)]
Moment = Annotated[datetime, BeforeValidator(_written_out)]


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


Money = Annotated[
    Decimal,
    PlainSerializer(_plain, return_type=str, when_used="json"),
    Field(description="An exact decimal number, as text."),
]


def with_example(example: dict[str, Any], *, strict: bool = False) -> ConfigDict:
    """A model's configuration: frozen, an example for OpenAPI; `strict` refuses what it does not know."""
    extra: Literal["forbid", "ignore"] = "forbid" if strict else "ignore"
    # What is asked is read as it is written: neither 1 nor "yes" is true.
    # Built on first use: a command line needs few of the schemas it imports.
    schema: dict[str, Any] = {"examples": [example]}
    return ConfigDict(extra=extra, frozen=True, strict=strict, json_schema_extra=schema, defer_build=True)
