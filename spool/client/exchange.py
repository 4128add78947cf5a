"""The steps of the client's calls: requests and pauses, as a generator that a client drives.

A call is written once and driven by `Spool` (which blocks) and `AsyncSpool` (which awaits): it yields an
`Ask` and gets the response, or yields a `Pause`. This module also decides when a request is repeated: while
the server is busy or unreachable, as long as `Retries` allows, and only if repeating it is safe. Opens no
connection.
"""

import json
import mimetypes
import random
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial, wraps
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path
from typing import Any, BinaryIO, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

import httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from spool import clock
from spool.client.errors import ClientError, ServerFailed, Unreachable, refusal
from spool.client.parts import PartUpload
from spool.schemas.common import ListOf

P = ParamSpec("P")
Result = TypeVar("Result")
Answer = TypeVar("Answer", bound=BaseModel)
Item = TypeVar("Item")
Sent: TypeAlias = Callable[[int, int], object]
"""Called with how many bytes of a file have been sent, and how many there are."""
Query: TypeAlias = Mapping[str, object]
"""Query parameters; those that are None are left out."""

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
# An answer to an upload waits until the server has stored the file.
SLOW = httpx.Timeout(600.0, connect=5.0)
_BUSY = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent, and how long to wait in between: `first_s` doubled each time with some
    jitter, or as `Retry-After` says, never longer than `longest_s`. A server that has never answered this
    client is tried `greetings` times."""

    tries: int = 6
    greetings: int = 6
    first_s: float = 0.5
    longest_s: float = 30.0

    def pause(self, failures: int, response: httpx.Response | None) -> float:
        """Seconds to wait after this many failures, the last of which may have been an answer."""
        requested = None if response is None else _retry_after(response.headers.get("retry-after", ""))
        backed_off = self.first_s * 2 ** (failures - 1) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        return min(self.longest_s, backed_off if requested is None else requested)


@dataclass(frozen=True, slots=True)
class Upload:
    """A form of two parts: `request` as JSON, and `file` from a path or from memory, opened for each try."""

    request: Mapping[str, Any]
    file: Path | bytes
    name: str
    kind: str
    sent: Sent | None = None

    @contextmanager
    def open_form(self) -> Iterator[dict[str, Any]]:
        """The form as httpx takes it. Raises OSError for a file that cannot be read."""
        words = (None, json.dumps(self.request, ensure_ascii=False), "application/json")
        with self._stream() as stream:
            yield {"request": words, "file": (self.name, stream, self.kind)}

    def _stream(self) -> BinaryIO:
        if isinstance(self.file, bytes):
            return BytesIO(self.file)
        return _CountedFile(self.file, self.sent) if self.sent else self.file.open("rb")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    method: str
    path: str
    params: Query = field(default_factory=dict)
    json: Any = None
    upload: Upload | None = None
    key: str | None = None
    """The `Idempotency-Key`."""
    slow: bool = False
    stream: bool = False
    any_status: bool = False
    repeatable: bool = False
    """Repeating it changes nothing more."""

    @property
    def may_repeat(self) -> bool:
        """Whether it may be repeated if it is unknown whether it arrived. A GET changes nothing, and a POST
        with a key takes effect once however often it is sent."""
        return self.method == "GET" or self.key is not None or self.repeatable

    @contextmanager
    def parts(self) -> Iterator[dict[str, Any]]:
        """The request as httpx takes it; a file in it is open within the block."""
        arguments: dict[str, Any] = {"params": body_of(self.params)}
        arguments["timeout"] = SLOW if self.slow or self.upload else TIMEOUT
        arguments["headers"] = {"Idempotency-Key": self.key} if self.key else {}
        if self.upload is None:
            yield arguments if self.json is None else arguments | {"json": self.json}
            return
        with self.upload.open_form() as form:
            yield arguments | {"files": form}


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait this many seconds."""

    seconds: float


Flow: TypeAlias = Generator[Ask | Pause | PartUpload, httpx.Response | None, Result]
"""A call: yields requests, gets the responses, returns the result. A failed connection is raised into it as
`Unreachable`. A `PartUpload` goes to the object store."""


class AnyPage(Protocol[Item]):
    """A page of a list."""

    @property
    def items(self) -> "list[Item]":
        """What is on the page."""

    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next page; None on the last."""


class Stream(Generic[Item]):
    """Results that are fetched as they are needed."""


@dataclass(frozen=True)
class Pages(Stream[Item]):
    """A list, fetched a page at a time by its cursor (None to begin with)."""

    fetch: Callable[[str | None], Flow[AnyPage[Item]]]


def all_pages(page: Callable[P, Flow[AnyPage[Item]]]) -> Callable[P, Pages[Item]]:
    """The call that goes through all pages of another call, with the same parameters: `limit` is the size of
    a page, `cursor` where to begin."""

    @wraps(page)
    def call(*args: P.args, **kwargs: P.kwargs) -> Pages[Item]:
        fetch: Callable[..., Flow[AnyPage[Item]]] = partial(page, *args, **kwargs)
        return Pages(lambda cursor: fetch() if cursor is None else fetch(cursor=cursor))

    call.__doc__ = f"All that `{page.__name__}` finds, fetched a page at a time as needed."
    return call


@dataclass(frozen=True)
class Lines(Stream[Item]):
    """A long answer as it arrives: each line read, or with `read` None the bytes as they come."""

    ask: Ask
    read: Callable[[str], Item] | None


@dataclass
class Contact:
    """What a client knows of its server: whether it ever answered."""

    retries: Retries = field(default_factory=Retries)
    answered: bool = False

    def gives_up(self, failures: int) -> bool:
        """Whether to give up."""
        return failures >= (self.retries.tries if self.answered else self.retries.greetings)


def ask_until_answered(ask: Ask, contact: Contact) -> Flow[httpx.Response]:
    """Repeat the request until there is an answer. Raises Refused and Unreachable."""
    failures = 0
    while True:
        response: httpx.Response | None = None
        try:
            response = yield ask
            assert response is not None
            contact.answered = True
            if response.is_success or ask.any_status:
                return response
            failures += 1
            # Too many requests: nothing was done. After any other failure only the answer may have been lost.
            harmless = ask.may_repeat or response.status_code == httpx.codes.TOO_MANY_REQUESTS
            if response.status_code not in _BUSY or not harmless or contact.gives_up(failures):
                raise refusal(response)
        except Unreachable:
            failures += 1
            if not ask.may_repeat or contact.gives_up(failures):
                raise
        yield Pause(contact.retries.pause(failures, response))


def with_retries(flow: Flow[Result], contact: Contact) -> Flow[Result]:
    """The same call with each of its requests repeated if necessary."""
    response: httpx.Response | None = None
    failed: ClientError | None = None
    while True:
        try:
            step = flow.send(response) if failed is None else flow.throw(failed)
        except StopIteration as end:
            result: Result = end.value
            return result
        response = failed = None
        if isinstance(step, Pause | PartUpload):
            yield step
            continue
        try:
            response = yield from ask_until_answered(step, contact)
        except ClientError as error:
            failed = error


def body_of(fields: Mapping[str, object]) -> dict[str, Any]:
    """The fields that are not None, as JSON: a date as text, any mapping as an object."""
    return {
        name: to_jsonable_python(dict(value) if isinstance(value, Mapping) else value)
        for name, value in fields.items()
        if value is not None
    }


def receive(ask: Ask) -> Flow[httpx.Response]:
    """Send the request, and return the answer unparsed."""
    response = yield ask
    assert response is not None
    return response


def read_list(ask: Ask, kind: type[Answer]) -> Flow[list[Answer]]:
    """Send the request, and parse the answer as a list of `kind`."""
    return (yield from read(ask, ListOf[kind])).items  # type: ignore[valid-type]


def read(ask: Ask, kind: type[Answer]) -> Flow[Answer]:
    """Send the request, and parse the answer as a `kind`."""
    return parse((yield from receive(ask)), kind)


def parse(response: httpx.Response, kind: type[Answer]) -> Answer:
    """The answer as a `kind`. Raises ServerFailed if it is something else."""
    try:
        return kind.model_validate_json(response.content)
    except ValidationError:
        detail = f"{response.url} did not answer like a Spool server; check the URL."
        raise ServerFailed(response.status_code, "http", detail, {}) from None


def kind_of(path: Path) -> str:
    """The media type of a file by its name."""
    return mimetypes.guess_type(path.name)[0] or "application/octet-stream"


class _CountedFile(BufferedReader):
    """A file that reports how much of it was read."""

    def __init__(self, path: Path, sent: Sent) -> None:
        super().__init__(FileIO(path))
        self._sent = sent
        self._size = path.stat().st_size

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size)
        self._sent(self.tell(), self._size)
        return block


def _retry_after(text: str) -> float | None:
    """`Retry-After`: seconds, or a date."""
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - clock.now()).total_seconds())
    except (TypeError, ValueError):
        return None
