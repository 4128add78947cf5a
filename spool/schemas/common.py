"""The types that the schemas share: names, dates, money, and how a schema carries its example.

Money is decimal text, times are UTC.
"""

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from spool.domain.fleet.routing import Requirement

Versions = Literal["newest", "all"]
Project = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Pool = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
WorkerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

# Inline, since a request's schema is shown whole.
Requires = Annotated[
    Requirement | None,
    WithJsonSchema({"anyOf": [Requirement.model_json_schema(), {"type": "null"}]}),
]


def _written_out(value: object) -> object:
    if isinstance(value, str) and value.strip().lstrip("+-").replace(".", "", 1).isdigit():
        raise ValueError("must be a date such as 2026-11-20, not a number")
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
    """A model's configuration: frozen, with an example for OpenAPI; `strict` refuses unknown fields."""
    extra: Literal["forbid", "ignore"] = "forbid" if strict else "ignore"
    # Strict also means no conversions: neither 1 nor "yes" is true.
    # Deferred, since a command uses few of the schemas that it imports.
    schema: dict[str, Any] = {"examples": [example]}
    return ConfigDict(extra=extra, frozen=True, strict=strict, json_schema_extra=schema, defer_build=True)
