"""Traces as OpenTelemetry sends them over OTLP/HTTP. Imported only where traces are asked for."""

from datetime import datetime

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from spool import __version__
from spool.tracing import Kind, Span, Value

_KINDS = {
    "internal": trace.SpanKind.INTERNAL,
    "server": trace.SpanKind.SERVER,
    "consumer": trace.SpanKind.CONSUMER,
}
_PROPAGATOR = TraceContextTextMapPropagator()
EXPORT_SECONDS = 5


class SendingTracer:
    """Makes spans and sends them in the background; what cannot be sent is dropped, and nobody waits for it.

    The SDK's own variables (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, …) hold as elsewhere.
    """

    def __init__(self, endpoint: str, service: str) -> None:
        resource = Resource.create({"service.name": service, "service.version": __version__})
        # Its own exit handler would wait for a collector that is away after everything else has ended.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("spool", __version__)

    def begin(
        self, name: str, parent: Span | None, link: str | None, kind: Kind, began: datetime | None
    ) -> Span:
        """A step of `parent`'s trace, or of a new one that points to `link`."""
        links = []
        if link is not None and (far := trace.get_current_span(_context(link)).get_span_context()).is_valid:
            links.append(trace.Link(far))
        start = None if began is None else round(began.timestamp() * 1e9)
        made = self._tracer.start_span(
            name, _context_of(parent), kind=_KINDS[kind], links=links, start_time=start
        )
        return _SentSpan(made)

    def stop(self) -> None:
        """Send what is left, for some seconds at most."""
        self._provider.force_flush(1000 * EXPORT_SECONDS)
        self._provider.shutdown()


class _SentSpan(Span):
    """A span of the SDK."""

    def __init__(self, made: trace.Span) -> None:
        self.context = trace.set_span_in_context(made, Context())
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, self.context)
        super().__init__(carrier.get("traceparent"))
        self._made = made

    def note(self, **attributes: Value | None) -> None:
        told = {f"spool.{name}": value for name, value in attributes.items() if value is not None}
        self._made.set_attributes(told)

    def rename(self, name: str) -> None:
        self._made.update_name(name)

    def failed(self, error: BaseException) -> None:
        self._made.record_exception(error)
        self._made.set_status(trace.StatusCode.ERROR, str(error))

    def end(self) -> None:
        self._made.end()


def _context_of(parent: Span | None) -> Context:
    if isinstance(parent, _SentSpan):
        return parent.context
    return _context(parent.header) if parent is not None and parent.header else Context()


def _context(header: str) -> Context:
    return _PROPAGATOR.extract({"traceparent": header}, Context())
