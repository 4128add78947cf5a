"""What the typed client takes by name, written by `ops.command_line`: the options of jobs, the fields of
submissions, and what narrows a list."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from api.app import create_app
from spool.domain.options import AskedOptions
from spool.schemas.batches import BatchRequest
from spool.schemas.jobs import JobRequest
from spool.schemas.sources import SourceRequest
from spool.settings import load_settings

CLIENT = Path(__file__).parents[1] / "spool" / "client"
MODULE = CLIENT / "options.py"
FIELDS = CLIENT / "fields.py"
_HEAD = '''"""Written by `python -m ops.command_line` from `spool/domain/options.py`: change options there."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Options(TypedDict, total=False):
    """How to transcribe; omitted options have the server's defaults. `docs/api.md` describes each."""

'''
_FIELDS_HEAD = '''"""What calls take by name: the fields of submissions, and what narrows a list.

None means the server's default. Written by `python -m ops.command_line` from `spool/schemas/` and
`api/routes/`: change it there."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict

from spool.client.options import Options
from spool.domain.jobs import JobState

State = JobState | Literal["queued", "running", "done", "failed", "cancelled"]
'''


def client_options() -> str:
    """The module `spool.client.options`."""
    fields = AskedOptions.model_fields.items()
    return _HEAD + "".join(f"    {name}: {_type_of(field.annotation)}\n" for name, field in fields)


def client_fields() -> str:
    """The module `spool.client.fields`."""
    job, batch, source = (
        {
            name: _type_of(field.annotation).replace("datetime", "datetime | str")
            for name, field in own.items()
        }
        | {"options": "Options"}
        for own in (each.model_fields for each in (JobRequest, BatchRequest, SourceRequest))
    )
    described = create_app(load_settings({})).openapi()
    listed, found, doubtful, passages = (
        _query_of(described, f"/v1/{path}") for path in ("jobs", "search", "review/recordings", "review")
    )
    of_jobs = {name: kind for name, kind in listed.items() if name in found and name in doubtful}
    base = "TypedDict, total=False"
    classes = (
        ("JobFields", base, "A submission's fields besides its source.", job),
        (
            "BatchFields",
            "JobFields",
            "A batch's, besides its source; lines have their own over these.",
            batch,
        ),
        ("SourceFields", base, "A watched source's, besides its address.", source),
        ("JobQuery", base, "Which jobs a list, the search or the review covers.", of_jobs),
        ("JobListQuery", "JobQuery", "Which jobs are listed.", listed),
        ("SearchQuery", "JobQuery", "What the search finds.", found),
        ("ReviewQuery", "JobQuery", "Which recordings the review lists.", doubtful),
        ("PassageQuery", "ReviewQuery", "Which passages the review lists.", passages),
    )
    parts, written = [_FIELDS_HEAD], {base: {"source": ""}}
    for name, parent, about, known in classes:
        written[name] = known | written[parent]
        parts.append(f"\n\nclass {name}({parent.removesuffix(', total=False')}, total=False):\n")
        parts.append(f'    """{about}"""\n\n')
        parts += [
            f"    {field}: {kind.removesuffix(' | None')} | None\n"
            for field, kind in known.items()
            if field not in written[parent]
        ]
    return "".join(parts)


def _query_of(described: Mapping[str, Any], path: str) -> dict[str, str]:
    """What narrows the list at a path of the OpenAPI description, by name."""
    known = described["components"]["schemas"]
    return {
        each["name"]: _type_in(each["schema"], known)
        for each in described["paths"][path]["get"]["parameters"]
        if each["in"] == "query" and each["name"] not in ("q", "cursor", "limit")
    }


def _type_in(schema: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """The type of a JSON schema of plain values, as a client writes one."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "State" if name == "JobState" else _type_in(known[name], known)
    if "anyOf" in schema:
        return " | ".join(_type_in(each, known) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return f"Literal[{', '.join(_quoted(schema['enum']))}]"
    if schema.get("format") == "date-time":
        return "datetime"
    return {"string": "str", "number": "float", "integer": "int", "boolean": "bool"}[schema["type"]]


def _type_of(annotation: Any) -> str:  # noqa: ANN401 - any annotation of a field
    """The annotation as a submitter writes its value: a model as a mapping, a tuple as any sequence."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_of(arguments[0])
    if origin is Literal:
        return f"Literal[{', '.join(_quoted(arguments))}]"
    if origin is tuple:
        return f"Sequence[{_type_of(arguments[0])}]"
    if origin is dict:
        return f"Mapping[{_type_of(arguments[0])}, {_type_of(arguments[1])}]"
    if annotation is Any:
        return "Any"
    if arguments:
        return " | ".join(map(_type_of, arguments))
    if annotation is NoneType:
        return "None"
    if issubclass(annotation, BaseModel):
        return "Mapping[str, Any]"
    return str(annotation.__name__)


def _quoted(values: Iterable[str]) -> Iterator[str]:
    return (f'"{value}"' for value in values)
