"""The flags of a command, derived from the declarations of job options (`spool.domain.options`).

A command has a subclass of `Flags` as a parameter. A flag that is not simply an option, such as a file of
phrases, is a field of the subclass with a `Parameter` of its own.
"""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from cyclopts import Parameter
from pydantic import BaseModel, ValidationError, model_validator

from spool.commandline.app import GROUPS
from spool.domain.declaration import declaration_of, flag_at, flag_of, in_flags, model_in
from spool.domain.options import Options, contradictions
from spool.errors import InvalidRequest, fault_message


def declare_flags(model: type[BaseModel], only: Collection[str] | None = None) -> None:
    """Give each option of the model a flag that has no `Parameter` yet. only: the options that have one."""
    for name, field in model.model_fields.items():
        if not any(isinstance(each, Parameter) for each in field.metadata):
            is_flag = only is None or name in only
            parameter = _parameter_of(model, name) if is_flag else Parameter(parse=False)
            field.metadata = [*field.metadata, parameter]
    Parameter(name="*")(model)


class Flags(Options):
    """The options of a job, as a command line gives them: only those in `model_fields_set` were given."""

    @model_validator(mode="before")
    @classmethod
    def _read_numbers(cls, given: dict[str, Any]) -> dict[str, Any]:
        return _with_numbers(cls, given)

    def to_options(self) -> dict[str, Any]:
        """The options that were given, as in a request."""
        return self.model_dump(mode="json", exclude_unset=True, include=set(Options.model_fields))

    def check(self, also: Collection[str] = ()) -> None:
        """Raise InvalidRequest for contradictory options. also: options that are given in another form."""
        for name, reason in contradictions(self, also):
            raise InvalidRequest(f"{flag_of(type(self), name)} {in_flags(reason, type(self))}.")


def describe_faults(model: type[BaseModel], error: ValidationError) -> str:
    """What is wrong with the flags of a model, as one sentence."""
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    message = fault_message(fault)
    path = [str(part) for part in fault["loc"]]
    field = model.model_fields.get(path[0])
    flag = flag_at(model, path)
    if field is not None and declaration_of(model, path[0]) is None:
        named = [name for each in field.metadata if isinstance(each, Parameter) for name in each.name or ()]
        flag = named[0] if named else flag
    return f"{flag}: {message[:1].lower()}{message[1:]}."


def read_phrases(file: Path | None) -> list[str]:
    """The phrases of a file, one a line. Raises InvalidRequest."""
    if file is None:
        return []
    try:
        lines = [line for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise InvalidRequest(f"{file} is not UTF-8 text.") from None
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from None
    if not lines:
        raise InvalidRequest(f"{file} contains no phrases.")
    return lines


def _parameter_of(model: type[BaseModel], name: str) -> Parameter:
    field, option = model.model_fields[name], declaration_of(model, name)
    if option is None:
        return Parameter(parse=False)
    nested = model_in(field)
    if nested is not None:
        declare_flags(nested)
        return Parameter(name="*")
    names = (flag_of(model, name), *option.alias)
    return Parameter(
        name=names,
        group=GROUPS[option.group],
        metavar=option.metavar,
        negative_bool="no-",
    )


def _with_numbers(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    """The values with numbers in place of text where numbers belong: an option refuses text for a number."""
    read = dict(given)
    for name, value in given.items():
        field = model.model_fields.get(name)
        if field is None:
            continue
        nested = model_in(field)
        if nested is not None and isinstance(value, dict):
            read[name] = _with_numbers(nested, value)
        for kind in (int, float):
            if isinstance(value, str) and kind in (get_args(field.annotation) or (field.annotation,)):
                with suppress(ValueError):  # refused by the field, in its words
                    read[name] = kind(value)
    return read
