"""JSON bodies: read, counted before they are parsed, and validated off the event loop.

Parsing and validating hold the interpreter lock, so no body may cost more than a legitimate one. Counting
separators takes a millisecond and refuses a body before it is parsed. Each route states its limits.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from api.problems import Problem, validation_problem
from spool.domain.archive.typescripts import MAX_TYPESCRIPT_BYTES

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a route's JSON may consist of."""

    size: int
    """Bytes."""
    values: int = 1_000
    """Values of every kind, counted by their separators; those inside texts count too."""
    keys: int = 1_000
    """Members of all objects together."""
    depth: int = 16
    """Objects and arrays inside one another."""
    text: int = 10_000
    """Characters of one text."""


SUBMISSION = BodyLimits(size=8 * 2**20, values=100_000)
"""Ten thousand phrases of two hundred characters, in any script."""
WITH_TEXT = replace(SUBMISSION, size=16 * 2**20, text=MAX_TYPESCRIPT_BYTES * 4 // 3 + 4)
"""The same with an existing transcript beside it, a file of up to 10 MiB in base64."""
SMALL = BodyLimits(size=64 * 2**10)

_DIGITS = 40


@dataclass(frozen=True, slots=True)
class JsonBody:
    """The dependency of a route that takes JSON: reads it on the event loop, so that the handler gets it in
    its thread. Raises `Problem` 400, 413 or 422, and 415 for another media type if `declared`."""

    kind: type[BaseModel]
    limits: BodyLimits = SMALL
    declared: bool = False

    async def __call__(self, request: Request) -> BaseModel:
        """The body of `request`."""
        if self.declared and media_type(request) != "application/json":
            raise Problem(415, "unsupported_media_type", "Send application/json.")
        return await read_json(request, self.kind, self.limits)


def json_body(kind: type[BaseModel], limits: BodyLimits = SMALL, *, declared: bool = False) -> Any:  # noqa: ANN401
    """Annotates a handler's parameter as its JSON body; `declared`: only with its media type."""
    return Depends(JsonBody(kind, limits, declared))


def media_type(request: Request) -> str:
    """The media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request, kind: type[Model], limits: BodyLimits) -> Model:
    """The JSON body of `request` as a `kind`. Raises `Problem` 400, 413 or 422."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limits.size:
            raise Problem(413, "too_large", f"The request body is larger than {limits.size} bytes.")
    return await parse_off_loop(request, kind, bytes(body), limits)


async def parse_off_loop(
    request: Request, kind: type[Model], body: bytes, limits: BodyLimits, *where: str
) -> Model:
    """`parse_json` on a thread; large bodies one after another, to limit the time that they hold the lock."""
    large: CapacityLimiter = request.app.state.services.large_bodies
    limiter = large if len(body) > SMALL.size else None
    return await anyio.to_thread.run_sync(parse_json, kind, body, limits, *where, limiter=limiter)


def parse_json(kind: type[Model], body: bytes, limits: BodyLimits, *where: str) -> Model:
    """The JSON in `body` as a `kind`; `where` precedes field names in errors. Raises `Problem`."""
    if len(body) > limits.size:
        raise Problem(413, "too_large", f"The JSON is larger than {limits.size} bytes.")
    if body.count(b",") + body.count(b"[") + body.count(b"{") > limits.values:
        raise Problem(413, "too_large", f"The JSON has more than {limits.values} values.")
    try:
        value = json.loads(body, parse_int=_number(int), parse_float=_number(float))
    except (ValueError, RecursionError):
        raise Problem(400, "invalid_request", "The request is not valid JSON.") from None
    _check_shape(value, limits)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise validation_problem(faults, *where) from None


def _number(kind: Callable[[str], float]) -> Callable[[str], float]:
    """A parser of numbers that refuses very long ones, since parsing them takes quadratic time."""

    def parse(text: str) -> float:
        if len(text) > _DIGITS:
            raise ValueError("The number has too many digits.")
        return kind(text)

    return parse


def _check_shape(value: Any, limits: BodyLimits) -> None:  # noqa: ANN401 - any JSON
    """Raise `Problem` for too many keys, too much depth, a long text, or a zero byte in a text."""
    keys, level = 0, [value]
    for _ in range(limits.depth + 2):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                keys += len(item)
                below += item
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str):
                if len(item) > limits.text:
                    raise Problem(
                        413, "too_large", f"A text in the JSON has more than {limits.text} characters."
                    )
                if "\0" in item:
                    raise Problem(
                        422, "invalid_request", "The JSON contains a zero byte (\\u0000); remove it."
                    )
        if keys > limits.keys:
            raise Problem(413, "too_large", f"The JSON has more than {limits.keys} keys.")
        if not below:
            return
        level = below
    raise Problem(422, "invalid_request", f"The JSON is nested more than {limits.depth} levels deep.")
