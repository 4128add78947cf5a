"""What the clients can do, beside the server's table of routes and its requests."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from starlette.routing import compile_path

from api.app import create_app
from api.routing import DOCUMENTED, ROUTES
from ops.client_options import FIELDS, MODULE, client_fields, client_options
from spool.client import AsyncSpool, Spool
from spool.client.exchange import Ask, Lines, Pages
from spool.client.methods import Call, Many, Methods
from spool.client.options import Options
from spool.domain import AskedOptions
from spool.settings import load_settings

WITHOUT_METHOD = {
    "GET /v1/jobs/{job_id}/events": "an event stream; `wait` polls",
    "GET /v1/batches/{batch_id}/events": "an event stream; `wait_batch` polls",
    "POST /v1/audio/transcriptions": "for clients of OpenAI's API",
    "POST /v1/audio/translations": "for clients of OpenAI's API",
    "POST /v1/sources/notifications": "for object stores",
    "POST /v1/uploads": "`submit` uploads large files by itself",
    "GET /v1/uploads/{upload_id}": "the same",
    "GET /v1/uploads/{upload_id}/parts": "the same",
    "POST /v1/uploads/{upload_id}/complete": "the same",
    "DELETE /v1/uploads/{upload_id}": "the sweeper deletes what no job uses",
}
GIVEN: dict[str, Any] = {
    "source": "s3://archive/",
    "file": Path(__file__),
    "names": {"speaker_0": "Ada"},
    "places": (),
}
METHODS = {name: method for name, method in vars(Methods).items() if isinstance(method, Call | Many)}
PATHS = [(name, compile_path(path)[0]) for path, name in DOCUMENTED]


@pytest.fixture(scope="module")
def parameters() -> dict[str, set[str]]:
    """What each route takes in its path and query."""
    return {
        f"{method.upper()} {path}": {each["name"] for each in operation.get("parameters", ())}
        for path, item in create_app(load_settings({})).openapi()["paths"].items()
        for method, operation in item.items()
    }


def first_request(call: Callable[..., Any]) -> Ask:
    """The first request of a call, with anything for its required parameters."""
    required = [
        parameter.name
        for parameter in inspect.signature(call).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    flow = call(**{name: GIVEN.get(name, "x") for name in required})
    if isinstance(flow, Lines):
        return flow.ask
    ask = next(flow.fetch(None) if isinstance(flow, Pages) else flow)
    assert isinstance(ask, Ask)
    return ask


def route_of(ask: Ask) -> str:
    return next(name for name, path in PATHS if name.startswith(f"{ask.method} ") and path.match(ask.path))


ASKS = {name: first_request(method._call) for name, method in METHODS.items()}


def test_every_route_has_a_method() -> None:
    covered = {route_of(ask) for ask in ASKS.values()}
    routes = {f"{route.method} /v1{route.path}" for route in ROUTES}
    assert routes - covered == WITHOUT_METHOD.keys()
    assert covered - routes == {"GET /readyz"}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_sends_only_what_its_route_takes(parameters: dict[str, set[str]], name: str) -> None:
    """Also the other way round for lists: whatever narrows them on the server narrows them here."""
    call, ask = METHODS[name]._call, ASKS[name]
    taken = parameters[route_of(ask)]
    assert set(ask.params) <= taken
    narrowing = inspect.signature(call).parameters.get("only")
    if narrowing is not None:
        (kind,) = get_args(inspect.get_annotations(call, eval_str=True)["only"])
        assert {*kind.__annotations__, *(set(ask.params) | {"cursor", "limit"})} == taken


def test_options_are_written_from_their_declarations() -> None:
    assert MODULE.read_text() == client_options(), "run: .venv/bin/python -m ops.command_line"
    assert FIELDS.read_text() == client_fields(), "the same"
    typed, known = get_type_hints(Options), AskedOptions.model_fields
    assert typed.keys() == known.keys()
    assert typed["decoder"] == known["decoder"].annotation
    assert typed["language"] == str | Sequence[str] | None
    assert typed["boost"] == Mapping[str, Any] | None


def test_both_clients_have_the_same_methods() -> None:
    def shown(client: type) -> dict[str, str]:
        return {name: str(inspect.signature(getattr(client, name))) for name in METHODS}

    assert shown(Spool) == shown(AsyncSpool)
    assert all(inspect.getdoc(getattr(Spool, name)) for name in METHODS)
