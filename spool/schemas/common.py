"""What the schemas share: the bases of requests and answers, names, dates and money.

Money is decimal text, times are UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from spool.domain.fleet.routing import Requirement

ROUNDED = AfterValidator(lambda value: round(value, 4))
Versions = Literal["newest", "all"]
Project = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Pool = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
RecordingTime = Annotated[float, Field(ge=0, lt=1e8)]
"""Seconds from the start of a recording."""
WorkerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


@dataclass(frozen=True, slots=True)
class ShownWhole:
    """Shows an optional model in a schema instead of a reference to it: a request's schema is shown whole."""

    model: type[BaseModel]

    def __get_pydantic_json_schema__(
        self, _core: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [self.model.model_json_schema(), {"type": "null"}]}


Requires = Annotated[
    Requirement | None,
    ShownWhole(Requirement),
]


def _refuse_number(value: object) -> object:
    if isinstance(value, str) and _is_number(value):
        raise ValueError("must be a date such as 2026-11-20, not a number")
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Pydantic would read a number as seconds since 1970.
Day = Annotated[date, BeforeValidator(_refuse_number)]
Moment = Annotated[datetime, BeforeValidator(_refuse_number)]


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


Money = Annotated[
    Decimal,
    PlainSerializer(_plain, return_type=str, when_used="json"),
    Field(description="An exact decimal number, as text."),
]


class RequestModel(BaseModel):
    """What a client sends. Unknown fields are refused, and nothing is converted: neither 1 nor "yes" is
    true."""

    # Deferred, since a command uses few of the schemas that it imports.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class AnswerModel(BaseModel):
    """What the server answers, read from JSON or from a record: an attribute of the field's name, or of its
    `validation_alias`."""

    model_config = ConfigDict(frozen=True, from_attributes=True, validate_by_name=True, defer_build=True)

    @classmethod
    def of(cls, record: object, **differing: object) -> Self:
        """The answer with the record's attributes, except for the fields given here."""
        return cls.model_validate(_Differing(record, cls, differing) if differing else record)


class _Differing:
    """A record some of whose attributes have other values for an answer."""

    def __init__(self, record: object, answer: type[BaseModel], fields: Mapping[str, object]) -> None:
        aliases = {name: answer.model_fields[name].validation_alias or name for name in fields}
        self._record = record
        self._values = {aliases[name]: value for name, value in fields.items()}

    def __getattr__(self, name: str) -> object:
        return self._values[name] if name in self._values else getattr(self._record, name)


Item = TypeVar("Item", bound=BaseModel)


def _name(kind: type[BaseModel]) -> str:
    return kind.__name__.removesuffix("Out")


class ListOf(AnswerModel, Generic[Item]):
    """All there is, in the order that the route states."""

    items: list[Item]

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        """`GlossaryList` of `GlossaryOut`."""
        return f"{_name(params[0])}List"


class Page(AnswerModel, Generic[Item]):
    """A page of a list, in the order that the route states; `next_cursor` gets the next page and is null on
    the last."""

    items: list[Item]
    next_cursor: str | None

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        """`JobPage` of `JobOut`."""
        return f"{_name(params[0])}Page"


def inline_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON schema with every reference resolved, to be included in the OpenAPI page."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})

    def resolve(node: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            return resolve(definitions[node["$ref"].rpartition("/")[2]]) | resolve(siblings)
        return {key: resolve(value) for key, value in node.items()}

    flat: dict[str, Any] = resolve({key: value for key, value in schema.items() if key != "$defs"})
    return flat
