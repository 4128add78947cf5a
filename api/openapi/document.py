"""The OpenAPI description of the API, from its table of routes.

Summaries and descriptions are the handlers' docstrings, schemas their types, and examples what the app itself
has answered (`examples.json`, which `tests/api/openapi/test_examples.py` records and checks).
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from fastapi import Response
from fastapi.params import Depends
from pydantic import BaseModel

from api.problems import MEDIA_TYPE, PROBLEMS, problem_document
from api.submission.bodies import JsonBody
from spool.domain.api_keys import Scope
from spool.schemas.common import inline_schema
from spool.schemas.events import EVENTS
from spool.schemas.fleet import ProblemOut

DESCRIPTION = """
Submit recordings, follow them, fetch their transcripts, and see what they cost.

A job is submitted with an address (`s3://`, `https://`, `file://`) or with the recording itself. Its states
are `queued → running → done | failed | cancelled`. Every error is an `application/problem+json` document
(RFC 9457) with a stable `code`.
"""
EVERYWHERE = "malformed unauthorized forbidden invalid_request rate_limited overloaded storage"
"""Problems with which every route that takes a key may answer."""
_OF_A_BODY = "too_slow too_large"
JSON, FORM, EVENT_STREAM = "application/json", "multipart/form-data", "text/event-stream"
_HEADERS = {"Location": "The path of what was created."}
_REPEATED = (
    "The idempotency key was used for the same request before: what that request created, as it is now."
)
_REFERENCE = "#/components/schemas/{model}"

Words = dict[str, Any]
Bodies = Mapping[str, type[BaseModel] | Words]


class Route(NamedTuple):
    """One route: `scope` None admits any key. The fields from `problems` on are for its description."""

    method: str
    path: str
    handler: Callable[..., Any]
    scope: Scope | None
    problems: str = ""
    """Codes of problems (`api.problems.PROBLEMS`) besides those of every route and of every body."""
    status: int = 200
    also: Mapping[int, str] = MappingProxyType({})
    """What its other successful statuses mean."""
    media: Mapping[str, Words] = MappingProxyType({})
    """Schemas by media type of answers besides the handler's return type."""
    body: Bodies = MappingProxyType({})
    """By media type, the body of a handler that reads it itself."""
    header: str | None = None

    @property
    def tag(self) -> str:
        """Its heading in the OpenAPI description."""
        parts = self.path.removeprefix("/v1").split("/")
        own = {
            "audio": "jobs",
            "overview": "fleet",
            "workers": "fleet",
            "models": "fleet",
            "metrics": "fleet",
        }
        return own.get(parts[1], "health" if parts[1].endswith("z") else parts[1])


_WITHOUT_MODEL = {204, 206, 307}
TEXT: Words = {"type": "string"}
BINARY: Words = {"type": "string", "format": "binary"}
EVENT_SCHEMA: Words = {
    "type": "string",
    "description": "Server-sent events. Each `data` is JSON as below; that of `end` is {}.",
    "contentMediaType": EVENT_STREAM,
    "contentSchema": {"oneOf": [{"$ref": f"#/components/schemas/{model.__name__}"} for model in EVENTS]},
}
REPEATED = {200: _REPEATED}
"""The second success of a route that honours an idempotency key."""


def form(file: str, request: type[BaseModel] | None, **also: Words) -> Words:
    """The schema of a form with the part `file`, described so, the JSON part `request`, and other parts."""
    parts: Words = {"file": BINARY | {"description": file}}
    if request is not None:
        parts["request"] = inline_schema(request)
    return {"type": "object", "required": ["file"], "properties": parts | also}


def describe(route: Route, *, takes_key: bool = True) -> Words:
    """The arguments with which FastAPI adds the route."""
    summary, _, text = (inspect.getdoc(route.handler) or "").partition("\n\n")
    model, body = _answer_model(route.handler), _body(route)
    codes = route.problems.split() + (_OF_A_BODY.split() if body else [])
    if takes_key:
        codes += EVERYWHERE.split()
    words: Words = {
        "summary": " ".join(summary.split()).removesuffix("."),
        "description": text or summary,
        "status_code": route.status,
        "tags": [route.tag],
        "responses": _successes(route, model) | _problems(codes),
    }
    if model is None or _returns_response(route.handler):
        words |= {"response_model": None, "response_class": Response}
    if body:
        words["openapi_extra"] = {"requestBody": {"required": True, "content": body}}
    return words


def complete(page: Words, *, requires_key: bool) -> Words:
    """The description with what no route declares: examples, problems and events."""
    schemas = page["components"]["schemas"]
    models: tuple[type[BaseModel], ...] = (ProblemOut, *EVENTS)
    for model in models:
        schema = model.model_json_schema(ref_template=_REFERENCE)
        schemas |= schema.pop("$defs", {}) | {model.__name__: schema}
    for name, operation in _operations(page):
        _add_examples(operation, _examples().get(name, {}))
        if not requires_key and "security" in operation:
            operation["security"].append({})
    return _with_short_names(page)


def _with_short_names(page: Words) -> Words:
    """Components by their titles: `JobPage`, where pydantic says `Page_JobOut_`."""
    text = json.dumps(page)
    for name, schema in page["components"]["schemas"].items():
        if name.endswith("_"):
            text = text.replace(f'"{name}"', f'"{schema["title"]}"').replace(
                f'/{name}"', f'/{schema["title"]}"'
            )
    short: Words = json.loads(text)
    return short


def _operations(page: Words) -> Iterator[tuple[str, Words]]:
    for path, methods in page["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _add_examples(operation: Words, known: Words) -> None:
    asked = operation.get("requestBody", {}).get("content", {})
    for kind, content in asked.items():
        content["example"] = known["request"][kind]
    for status, answer in operation["responses"].items():
        for kind, content in answer.get("content", {}).items():
            if content["schema"] == BINARY:
                content["example"] = "(bytes)"
            elif kind != MEDIA_TYPE:
                # A status that only a fault brings about looks like the route's other success.
                shown = known["answers"].get(status, {}).get(kind) or next(
                    each[kind] for each in known["answers"].values() if kind in each
                )
                content |= {"example": shown[""]} if list(shown) == [""] else {"examples": _by_name(shown)}


def example(name: str, status: int) -> Any:  # noqa: ANN401 - JSON
    """The JSON that a route answers with this status, by the route's name."""
    return _examples()[name]["answers"][str(status)][JSON][""]


def _by_name(examples: Words) -> Words:
    return {name: {"value": example} for name, example in examples.items()}


@cache
def _examples() -> Words:
    text = Path(__file__).with_name("examples.json").read_text(encoding="utf-8")
    examples: Words = json.loads(text)
    return examples


def _successes(route: Route, model: Any) -> dict[int | str, Words]:  # noqa: ANN401 - a type
    answers: dict[int | str, Words] = {}
    for status, meaning in {route.status: "", **route.also}.items():
        answers[status] = {"description": meaning or _meaning(model)}
        if model is not None and status not in _WITHOUT_MODEL:
            answers[status]["model"] = model
        if route.header and status == route.status:
            schema = {"type": "string"}
            answers[status]["headers"] = {
                route.header: {"description": _HEADERS[route.header], "schema": schema}
            }
    content = {kind: {"schema": schema} for kind, schema in route.media.items()}
    for status in {route.status, 206} & answers.keys() if content else ():
        answers[status]["content"] = content
    return answers


def _meaning(model: Any) -> str:  # noqa: ANN401 - a type
    if isinstance(model, type) and issubclass(model, BaseModel):
        return " ".join((inspect.getdoc(model) or "").partition("\n\n")[0].split())
    return "Done."


def _problems(codes: list[str]) -> dict[int | str, Words]:
    by_status: dict[int | str, Words] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(PROBLEMS[code].status, {})[code] = {"value": problem_example(code)}
    return {
        status: {
            "description": ", ".join(dict.fromkeys(f"`{each['value']['code']}`" for each in named.values())),
            "content": {
                MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}, "examples": named}
            },
        }
        for status, named in by_status.items()
    }


def problem_example(name: str) -> Words:
    """The example of one problem."""
    known = PROBLEMS[name]
    return problem_document(known.status, known.code or name, known.detail, "/v1/jobs")


def _answer_model(handler: Callable[..., Any]) -> Any:  # noqa: ANN401 - a type
    """What the handler answers as JSON: its return type, or what that is annotated with."""
    returned = get_type_hints(handler, include_extras=True)["return"]
    if get_origin(returned) is Annotated:
        return get_args(returned)[1]
    return None if returned in (Response, type(None)) or _is_response(returned) else returned


def _returns_response(handler: Callable[..., Any]) -> bool:
    return _is_response(get_type_hints(handler)["return"])


def _is_response(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Response)


def _body(route: Route) -> Words:
    schemas = dict(route.body)
    for hint in get_type_hints(route.handler, include_extras=True).values():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, Depends) and isinstance(mark.dependency, JsonBody):
                schemas[JSON] = mark.dependency.kind
    content: Words = {}
    for kind, schema in schemas.items():
        content[kind] = {"schema": schema if isinstance(schema, dict) else inline_schema(schema)}
        if kind == FORM and "request" in content[kind]["schema"]["properties"]:
            content[kind]["encoding"] = {"request": {"contentType": JSON}}
    return content
