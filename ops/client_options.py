"""The options of jobs as the typed client takes them, written by `ops.command_line`."""

from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from spool.domain.options import AskedOptions

MODULE = Path(__file__).parents[1] / "spool" / "client" / "options.py"
_HEAD = '''"""Written by `python -m ops.command_line` from `spool/domain/options.py`: change options there."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Options(TypedDict, total=False):
    """How to transcribe; omitted options have the server's defaults. `docs/api.md` describes each."""

'''


def client_options() -> str:
    """The module `spool.client.options`."""
    fields = AskedOptions.model_fields.items()
    return _HEAD + "".join(f"    {name}: {_type_of(field.annotation)}\n" for name, field in fields)


def _type_of(annotation: Any) -> str:  # noqa: ANN401 - any annotation of a field
    """The annotation as a submitter writes its value: a model as a mapping, a tuple as any sequence."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_of(arguments[0])
    if origin is Literal:
        return f"Literal[{', '.join(_quoted(arguments))}]"
    if origin is tuple:
        return f"Sequence[{_type_of(arguments[0])}]"
    if arguments:
        return " | ".join(map(_type_of, arguments))
    if annotation is NoneType:
        return "None"
    if issubclass(annotation, BaseModel):
        return "Mapping[str, Any]"
    return str(annotation.__name__)


def _quoted(values: tuple[str, ...]) -> Iterator[str]:
    return (f'"{value}"' for value in values)
