"""Traces of jobs by OpenTelemetry; without an endpoint to send them to, only their context is passed on.

A job's trace continues its submitter's: the W3C header `traceparent` of the request is kept in the job's row,
so that whichever worker claims the job continues from there. The steps of a job and their attributes are for
the callers to choose.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from spool import __version__
from spool.errors import SettingsError

Kind = Literal["internal", "server", "consumer"]
Value = str | int | float

EXPORT_SECONDS = 5
_PROPAGATOR = TraceContextTextMapPropagator()
_NO_ATTRIBUTES: Mapping[str, Value | None] = MappingProxyType({})
_tracer: trace.Tracer = trace.NoOpTracer()


class Span:
    """One step of a trace."""

    def __init__(self, span: trace.Span = trace.INVALID_SPAN) -> None:
        self._span = span

    @property
    def context(self) -> context.Context:
        """The context in which this is the current step."""
        return trace.set_span_in_context(self._span, context.Context())

    @property
    def header(self) -> str | None:
        """The trace and the step as W3C's `traceparent`; None without a trace."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, self.context)
        return carrier.get("traceparent")

    def note(self, **attributes: Value | None) -> None:
        """Add attributes, prefixed with `spool.`; those that are None are left out."""
        known = {f"spool.{key}": value for key, value in attributes.items() if value is not None}
        self._span.set_attributes(known)

    def rename(self, name: str) -> None:
        """Change the name under which it is shown."""
        self._span.update_name(name)

    def record_error(self, error: BaseException) -> None:
        """Record the error that it ended in."""
        self._span.record_exception(error)
        self._span.set_status(trace.StatusCode.ERROR, str(error))

    def end(self) -> None:
        """End it now."""
        self._span.end()


def refuse_without_opentelemetry(endpoint: str | None) -> None:
    """Raise SettingsError where traces are to be sent and the packages that send them are not installed."""
    if endpoint is None:
        return
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        raise SettingsError(
            "SPOOL_OTLP_ENDPOINT is set, but OpenTelemetry's exporter is not installed: "
            "pip install 'spool-transcribe[telemetry]'."
        ) from None


def start_traces(endpoint: str | None, service: str) -> Callable[[], None]:
    """Send traces to this OTLP/HTTP endpoint until the returned function is called. None: does nothing.

    Spans are sent in the background and dropped where the collector does not answer. The SDK's own variables
    (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, …) apply. Raises SettingsError where OpenTelemetry's
    exporter is not installed.
    """
    global _tracer
    if endpoint is None:
        return lambda: None
    refuse_without_opentelemetry(endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": service, "service.version": __version__})
    # Its own exit handler would wait for an unreachable collector after everything else has ended.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = provider.get_tracer("spool", __version__)

    def stop() -> None:
        global _tracer
        _tracer = trace.NoOpTracer()
        provider.force_flush(1000 * EXPORT_SECONDS)
        provider.shutdown()

    return stop


def begin(
    name: str,
    attributes: Mapping[str, Value | None] = _NO_ATTRIBUTES,
    *,
    parent: Span | str | None = None,
    link: str | None = None,
    kind: Kind = "internal",
    began: datetime | None = None,
) -> Span:
    """Begin a step that the caller ends.

    `parent` is a span or a `traceparent` header; without a valid one the step belongs to the current step, or
    begins a trace. `link` is the header of another trace that the step points to.
    """
    parent = Span(_remote(parent)) if isinstance(parent, str) else parent
    if parent is None or not parent.header:
        parent = current()
    linked = _remote(link).get_span_context()
    span = Span(
        _tracer.start_span(
            name,
            parent.context,
            kind=trace.SpanKind[kind.upper()],
            links=[trace.Link(linked)] if linked.is_valid else [],
            start_time=None if began is None else round(began.timestamp() * 1e9),
        )
    )
    span.note(**attributes)
    return span


@contextlib.contextmanager
def span(
    name: str,
    attributes: Mapping[str, Value | None] = _NO_ATTRIBUTES,
    *,
    parent: Span | str | None = None,
    kind: Kind = "internal",
) -> Iterator[Span]:
    """Begin a step that is current within the block and ends with it. Records what the block raises."""
    with within(begin(name, attributes, parent=parent, kind=kind)) as step:
        yield step


@contextlib.contextmanager
def within(step: Span) -> Iterator[Span]:
    """Make `step` the current one within the block, and end it there. Records what the block raises."""
    token = context.attach(step.context)
    try:
        yield step
    except BaseException as error:
        step.record_error(error)
        raise
    finally:
        context.detach(token)
        step.end()


def current() -> Span:
    """The current step."""
    return Span(trace.get_current_span())


def add_trace(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the current trace and step to a log line, as a structlog processor."""
    span_context = trace.get_current_span().get_span_context()
    if span_context.is_valid:
        event["trace_id"] = trace.format_trace_id(span_context.trace_id)
        event["span_id"] = trace.format_span_id(span_context.span_id)
    return event


def _remote(header: str | None) -> trace.Span:
    """The step that a `traceparent` header names; an invalid one for None and for other text."""
    return trace.get_current_span(_PROPAGATOR.extract({"traceparent": header or ""}, context.Context()))
