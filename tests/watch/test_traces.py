"""One job seen from outside: its trace as a collector gets it, and its lines in both logs."""

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from structlog.testing import capture_logs

from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.rows import claimed, let_lapse, queued
from ops.testbed.stack import HEADERS, Stack, until
from spool.background import sweep_once
from spool.broker import EmbeddedRedis
from spool.errors import SettingsError
from spool.settings import Settings, load_settings
from spool.store import Database, JobFilter, list_jobs
from spool.tracing import current, span, start_traces
from tests.api.cli.commands import ROOT

pytestmark = pytest.mark.timeout(600)  # two processes start and stop in it, on a slow machine
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Collector:
    """A local OTLP/HTTP receiver: every span with the name of the service that sent it."""

    url: str
    spans: list[tuple[str, SentSpan]] = field(default_factory=list)

    def named(self, name: str, job_id: str | None = None) -> list[SentSpan]:
        return [
            one
            for _, one in self.spans
            if one.name == name and (job_id is None or notes(one).get("spool.job_id") == job_id)
        ]


def notes(one: SentSpan) -> dict[str, str | int | float]:
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in one.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = next(
                    one.value.string_value
                    for one in resource.resource.attributes
                    if one.key == "service.name"
                )
                told.spans += [(service, one) for scope in resource.scope_spans for one in scope.spans]
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def stack(
    tmp_path: Path, sqlite_url: str, redis_url: str, redis_server: EmbeddedRedis, collector: Collector
) -> Iterator[Stack]:
    environment: dict[str, Any] = {
        "SPOOL_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "SPOOL_LEASE_SECONDS": "60",
    }
    stack = Stack(tmp_path / "home", sqlite_url, redis_server, **environment)
    stack.log = tmp_path / "log"
    yield stack
    stack.close()


def test_a_job_is_one_trace_and_every_line_about_it_says_so(stack: Stack, collector: Collector) -> None:
    # Given a job under its client's trace, and a batch with a good and a bad line
    url = stack.serve()
    good = write_wav(stack.home / "good.wav", speechlike(50))
    broken = stack.home / "broken.wav"
    broken.write_text("It is a text.")
    lines = [{"source": good.as_uri()}, {"source": broken.as_uri()}]
    manifest = "\n".join(map(json.dumps, lines)).encode()
    with httpx.Client(base_url=url, headers=HEADERS, timeout=60, trust_env=False) as http:
        asked = {"source": good.as_uri()}
        job = http.post("/v1/jobs", json=asked, headers={"traceparent": CLIENT}).json()["id"]
        form = {"Content-Type": "application/jsonl"}
        batch = http.post("/v1/batches", content=manifest, headers=form).json()["id"]

        # When a worker has done them
        stack.worker()
        with stack.db.read() as tx:
            others = [one.id for one in list_jobs(tx, JobFilter()).items if one.batch_id == batch]
        assert len(others) == 2
        until(lambda: stack.ended([job, *others]), "the jobs ended")
        assert http.delete(f"/v1/jobs/{job}").status_code == 409
    stack.stop_workers()
    stack.stop_apis()

    # Then its steps hang on each other, from the client's on, each with its id
    (asked_for,) = collector.named("POST /v1/jobs")
    (waited,), (attempt,) = collector.named("wait", job), collector.named("attempt", job)
    (finish,), chunks = collector.named("finish", job), collector.named("chunk", job)
    trace, span_id = CLIENT.split("-")[1:3]
    assert len(chunks) >= 2
    for step, parent in [
        (asked_for, bytes.fromhex(span_id)),
        (waited, asked_for.span_id),
        (attempt, waited.span_id),
        (finish, attempt.span_id),
        *((chunk, attempt.span_id) for chunk in chunks),
    ]:
        assert (step.trace_id.hex(), step.parent_span_id) == (trace, parent), step.name
        assert notes(step)["spool.job_id"] == job
        assert step.end_time_unix_nano >= step.start_time_unix_nano > 0
        assert step.status.code == Status.STATUS_CODE_UNSET
    assert notes(attempt)["spool.outcome"] == "done"
    assert all(int(notes(chunk)["spool.batch_utterances"]) >= 1 for chunk in chunks)
    services = {one.name: service for service, one in collector.spans}
    assert (services["POST /v1/jobs"], services["attempt"]) == ("spool-api", "spool-worker")

    # And what came in a batch has a trace of its own that points to the batch's, with its error
    (bad,) = [one for one in others if stack.job(one).error_code == "audio_unreadable"]
    (handed_in,), (failed,) = collector.named("POST /v1/batches"), collector.named("attempt", bad)
    (link,) = collector.named("wait", bad)[0].links
    assert (link.trace_id, link.span_id) == (handed_in.trace_id, handed_in.span_id)
    assert failed.trace_id != handed_in.trace_id
    assert (notes(failed)["spool.batch_id"], notes(handed_in)["spool.batch_id"]) == (batch, batch)
    assert notes(failed)["spool.error"] == "audio_unreadable"
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert "broken.wav" in failed.status.message
    assert [event.name for event in failed.events] == ["exception"]

    # And every line that names one of these jobs carries its ids, and the worker's its trace
    batch_of = {job: None} | dict.fromkeys(others, batch)
    assert stack.log is not None
    entries = [json.loads(line) for line in stack.log.read_text().splitlines()]
    about = [(line, each) for line in entries for each in batch_of if each in json.dumps(line)]
    for line, each in about:
        assert (line.get("job_id"), line.get("batch_id")) == (each, batch_of[each]), line
    assert {line["event"] for line, _ in about} >= {"answered", "done", "failed"}
    (done,) = [line for line, each in about if line["event"] == "done" and each == job]
    assert (done["trace_id"], done["span_id"]) == (trace, attempt.span_id.hex())


def test_a_lease_that_ran_out_is_told_with_the_ids_of_its_job(
    db: Database, celery: Any, make_settings: Callable[..., Settings]
) -> None:
    job = queued(db, batch_id="bat_1", batch_line=1, custom_id="a")
    let_lapse(db, claimed(db, job.id).job.id)
    with capture_logs() as logs:
        sweep_once(db, celery, make_settings(), "swp_1")
    (line,) = [line for line in logs if line["event"] == "lease ran out"]
    assert (line["job_id"], line["batch_id"], line["becomes"]) == (job.id, "bat_1", "queued")


def test_traces_that_nobody_asked_for_import_nothing() -> None:
    senders = "{'opentelemetry.sdk.trace', 'opentelemetry.exporter'}"
    asked = f"import sys, api.app, worker.app; print({senders} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "set()"
    start_traces(None, "spool-api")()
    with span("POST /v1/jobs", parent=CLIENT):
        assert current().header == CLIENT, "what a client sent is passed on all the same"
    with span("POST /v1/jobs", parent="00-nonsense"):
        assert current().header is None


def test_traces_without_opentelemetry_are_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingsError, match=r"pip install 'spool-transcribe\[telemetry\]'"):
        start_traces("http://127.0.0.1:4318", "spool-api")


def test_the_endpoint_may_come_from_opentelemetrys_own_variable() -> None:
    def endpoint(**environ: str) -> str | None:
        settings: Settings = load_settings(environ)
        return settings.otlp_endpoint

    standard = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}
    assert endpoint() is None
    assert endpoint(**standard) == "http://a:4318"
    assert endpoint(**standard, SPOOL_OTLP_ENDPOINT="http://b:4318") == "http://b:4318"
    with pytest.raises(SettingsError, match="SPOOL_OTLP_ENDPOINT"):
        endpoint(SPOOL_OTLP_ENDPOINT="b:4318")
