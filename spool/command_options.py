"""Options of a command line as fields of dataclasses, so that commands share them and functions stay short.

A command has such a dataclass as one of its parameters; `takes_options` shows Typer the fields instead.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from spool.errors import InvalidRequest

Result = TypeVar("Result")


def takes_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """The command with the fields of its dataclass parameters as parameters of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind) and isinstance(kind, type)}

    def run(**given: Any) -> Result:  # noqa: ANN401 - whatever Typer read
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        return command(**given)

    shown = list(_shown(inspect.signature(command), hints, groups))
    run.__doc__, run.__name__, run.__module__ = command.__doc__, command.__name__, command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return run


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


def _shown(
    signature: inspect.Signature, hints: dict[str, Any], groups: dict[str, type]
) -> Iterator[inspect.Parameter]:
    parameter = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    for name, own in signature.parameters.items():
        if name not in groups:
            yield parameter(name, default=own.default, annotation=hints[name])
            continue
        of_group = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            yield parameter(field.name, default=field.default, annotation=of_group[field.name])
