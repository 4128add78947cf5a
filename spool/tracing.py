"""Traces of jobs by OpenTelemetry where they are asked for; else nothing is imported and nothing is done.

A job's trace goes on where its submitter's stopped: the W3C header `traceparent` of the request lies in the
job's row, so that whichever worker takes the job goes on from there. Knows the steps as `Span`s; what sends
them is `spool.tracing_export`, the only module that imports OpenTelemetry.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, Protocol

from spool.errors import SettingsError

Kind = Literal["internal", "server", "consumer"]
Value = str | int | float

_HEADER = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Span:
    """One step of a trace. This one is sent nowhere: `header` is what came in, to be passed on."""

    def __init__(self, header: str | None = None) -> None:
        self.header = header
        """Names the trace and the step, as W3C's `traceparent`."""

    def note(self, **attributes: Value | None) -> None:
        """Say more of it, under names that begin with `spool.`; what is None is left out."""

    def rename(self, name: str) -> None:
        """Its name became known."""

    def failed(self, error: BaseException) -> None:
        """It ended in this error."""

    def end(self) -> None:
        """It is over."""


class Tracer(Protocol):
    """What makes spans that are sent."""

    def begin(
        self, name: str, parent: Span | None, link: str | None, kind: Kind, began: datetime | None
    ) -> Span:
        """A step of `parent`'s trace, or of a new one that points to `link`."""

    def stop(self) -> None:
        """Send what is left."""


_NOTHING = Span()
_NO_NOTES: Mapping[str, Value | None] = MappingProxyType({})
_tracer: Tracer | None = None
_current: ContextVar[Span] = ContextVar("spool_span", default=_NOTHING)


def refuse_without_opentelemetry(endpoint: str | None) -> None:
    """Raise SettingsError where traces are asked for and what sends them is not installed."""
    if endpoint is None:
        return
    try:
        import spool.tracing_export  # noqa: F401
    except ImportError:
        raise SettingsError(
            "SPOOL_OTLP_ENDPOINT asks for traces, and OpenTelemetry is not installed: "
            "pip install 'spool-transcribe[telemetry]'."
        ) from None


def start_traces(endpoint: str | None, service: str) -> Callable[[], None]:
    """Send traces to this OTLP/HTTP endpoint from now on; the answer ends that. None: does nothing.

    Raises SettingsError where OpenTelemetry is not installed.
    """
    global _tracer
    if endpoint is None:
        return lambda: None
    refuse_without_opentelemetry(endpoint)
    from spool.tracing_export import SendingTracer

    mine = SendingTracer(endpoint, service)
    _tracer = mine

    def stop() -> None:
        global _tracer
        if _tracer is mine:
            _tracer = None
        mine.stop()

    return stop


def begin(
    name: str,
    about: Mapping[str, Value | None] = _NO_NOTES,
    *,
    parent: Span | str | None = None,
    link: str | None = None,
    kind: Kind = "internal",
    began: datetime | None = None,
) -> Span:
    """A step that its caller ends. `parent`: a span or a header; without one, the present step of this
    thread, or a trace of its own."""
    if isinstance(parent, str):
        parent = Span(parent) if _HEADER.fullmatch(parent) else None
    if _tracer is None:
        return parent or _NOTHING
    one = _tracer.begin(name, parent or current(), link, kind, began)
    one.note(**about)
    return one


@contextlib.contextmanager
def span(
    name: str,
    about: Mapping[str, Value | None] = _NO_NOTES,
    *,
    parent: Span | str | None = None,
    kind: Kind = "internal",
) -> Iterator[Span]:
    """As `begin`, for the length of the block, and in it the present step. Notes what the block raises."""
    with within(begin(name, about, parent=parent, kind=kind)) as one:
        yield one


@contextlib.contextmanager
def within(one: Span) -> Iterator[Span]:
    """Make `one` the present step for the length of the block, and end it there."""
    before = _current.set(one)
    try:
        yield one
    except BaseException as error:
        one.failed(error)
        raise
    finally:
        _current.reset(before)
        one.end()


def current() -> Span:
    """The present step."""
    return _current.get()


def add_trace(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """For structlog: which trace a line belongs to."""
    header = _current.get().header
    if header is not None and _tracer is not None:
        event["trace_id"], event["span_id"] = header.split("-")[1:3]
    return event
