"""The OpenAPI page: every operation has its words, an example of each answer, and its problems."""

import re
from typing import Any

import pytest
from pydantic import BaseModel

from api.app import create_app
from api.openapi.lattices import KALDI, LATTICE
from spool.domain.transcript import Lattice, Transcript
from spool.formats.lattices import format_entry
from spool.schemas import batches as batch_schemas
from spool.schemas import costs as cost_schemas
from spool.schemas import fleet as schemas_fleet
from spool.schemas import jobs as schemas
from spool.schemas import outputs as output_schemas
from spool.schemas import search as search_schemas
from spool.schemas import sources as source_schemas
from spool.schemas import uploads as upload_schemas
from spool.schemas import versions as version_schemas
from spool.schemas import webhooks as webhook_schemas
from spool.schemas.examples import batches, costs, jobs, outputs, search, sources, uploads, versions, webhooks
from spool.settings import load_settings

METHODS = ("get", "post", "delete", "put", "patch")


def page() -> dict[str, Any]:
    return create_app(load_settings({})).openapi()


def operations() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", item[method])
        for path, item in page()["paths"].items()
        for method in METHODS
        if method in item
    ]


OPERATIONS = operations()


def test_every_route_is_on_the_page() -> None:
    assert sorted(name for name, _ in OPERATIONS) == [
        "DELETE /v1/batches/{batch_id}",
        "DELETE /v1/connections/{name}",
        "DELETE /v1/glossaries/{glossary}",
        "DELETE /v1/jobs/{job_id}",
        "DELETE /v1/jobs/{job_id}/content",
        "DELETE /v1/language-models/{language_model}",
        "DELETE /v1/sources/{source_id}",
        "DELETE /v1/uploads/{upload_id}",
        "DELETE /v1/voices/{voice_id}",
        "DELETE /v1/webhooks/{webhook_id}",
        "GET /healthz",
        "GET /metrics",
        "GET /readyz",
        "GET /v1/batches",
        "GET /v1/batches/{batch_id}",
        "GET /v1/batches/{batch_id}/diff",
        "GET /v1/batches/{batch_id}/events",
        "GET /v1/batches/{batch_id}/results",
        "GET /v1/batches/{batch_id}/transcripts",
        "GET /v1/connections",
        "GET /v1/costs",
        "GET /v1/glossaries",
        "GET /v1/glossaries/{glossary}",
        "GET /v1/glossary-suggestions",
        "GET /v1/jobs",
        "GET /v1/jobs/{job_id}",
        "GET /v1/jobs/{job_id}/audio",
        "GET /v1/jobs/{job_id}/diff",
        "GET /v1/jobs/{job_id}/edits",
        "GET /v1/jobs/{job_id}/events",
        "GET /v1/jobs/{job_id}/phrases",
        "GET /v1/jobs/{job_id}/speakers",
        "GET /v1/jobs/{job_id}/transcript",
        "GET /v1/jobs/{job_id}/versions",
        "GET /v1/language-models",
        "GET /v1/language-models/{language_model}",
        "GET /v1/models",
        "GET /v1/models/{model}",
        "GET /v1/overview",
        "GET /v1/review",
        "GET /v1/review/recordings",
        "GET /v1/review/samples",
        "GET /v1/review/samples/{sample_id}",
        "GET /v1/review/size",
        "GET /v1/search",
        "GET /v1/sources",
        "GET /v1/sources/{source_id}",
        "GET /v1/sources/{source_id}/items",
        "GET /v1/uploads/{upload_id}",
        "GET /v1/uploads/{upload_id}/parts",
        "GET /v1/voices",
        "GET /v1/webhooks",
        "GET /v1/webhooks/{webhook_id}",
        "GET /v1/webhooks/{webhook_id}/deliveries",
        "GET /v1/workers",
        "PATCH /v1/jobs/{job_id}/speakers",
        "PATCH /v1/sources/{source_id}",
        "POST /v1/audio/transcriptions",
        "POST /v1/audio/translations",
        "POST /v1/batches",
        "POST /v1/batches/{batch_id}/retry-failed",
        "POST /v1/connections",
        "POST /v1/glossaries",
        "POST /v1/jobs",
        "POST /v1/jobs/{job_id}/audio-link",
        "POST /v1/jobs/{job_id}/diarize",
        "POST /v1/jobs/{job_id}/edits",
        "POST /v1/jobs/{job_id}/edits/{revision}/undo",
        "POST /v1/jobs/{job_id}/exports",
        "POST /v1/jobs/{job_id}/passages/{passage}/check",
        "POST /v1/jobs/{job_id}/rerun",
        "POST /v1/jobs/{job_id}/retry",
        "POST /v1/language-models",
        "POST /v1/review/samples",
        "POST /v1/sources",
        "POST /v1/sources/notifications",
        "POST /v1/sources/{source_id}/check",
        "POST /v1/sources/{source_id}/pause",
        "POST /v1/sources/{source_id}/resume",
        "POST /v1/uploads",
        "POST /v1/uploads/{upload_id}/complete",
        "POST /v1/webhooks",
        "POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay",
        "POST /v1/webhooks/{webhook_id}/enable",
        "POST /v1/webhooks/{webhook_id}/rotate",
        "POST /v1/webhooks/{webhook_id}/test",
        "PUT /v1/models/default",
    ]


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_every_answer_has_an_example(name: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]
    for status, answer in operation["responses"].items():
        if status in {"204", "307"}:  # no body
            continue
        assert answer["content"], (name, status)
        for kind, content in answer["content"].items():
            assert "example" in content or content.get("examples"), (name, status, kind)
            assert "schema" in content, (name, status, kind)
    for content in operation.get("requestBody", {}).get("content", {}).values():
        assert content["example"]
        assert content["schema"]


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_errors_are_problems_and_never_the_frameworks_own(name: str, operation: dict[str, Any]) -> None:
    for status, answer in operation["responses"].items():
        if int(status) >= 400 and name not in {"GET /healthz", "GET /readyz"}:
            assert list(answer["content"]) == ["application/problem+json"], (name, status)
            for example in answer["content"]["application/problem+json"]["examples"].values():
                schemas_fleet.ProblemOut.model_validate(example["value"], extra="forbid")
                assert example["value"]["status"] == int(status)
    if "/v1/" in name:
        assert {"401", "422", "503"} <= set(operation["responses"])
        assert operation["security"]


def test_every_reference_leads_somewhere() -> None:
    document = page()
    defined = set(document["components"]["schemas"])

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [ref for value in node.values() for ref in references(value)]
        if isinstance(node, list):
            return [ref for value in node for ref in references(value)]
        return []

    for reference in references(document):
        assert reference.startswith("#/components/schemas/"), reference
        assert reference.rpartition("/")[2] in defined, reference
    assert "HTTPValidationError" not in defined


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        (schemas.UploadRequest, jobs.UPLOAD_REQUEST),
        (schemas.JobRequest, jobs.JOB_REQUEST),
        (schemas.JobOut, jobs.JOB),
        (schemas.JobDetail, jobs.JOB_DETAIL),
        (schemas.JobDetail, jobs.JOB_QUEUED),
        (schemas.JobDetail, jobs.JOB_CANCELLED),
        (schemas.JobPage, jobs.JOB_PAGE),
        (cost_schemas.CostReportOut, costs.COSTS),
        (schemas_fleet.WorkerList, jobs.WORKERS),
        (schemas_fleet.ModelList, jobs.MODELS),
        (schemas_fleet.Health, jobs.HEALTH),
        (schemas_fleet.Health, jobs.STOPPING),
        (schemas_fleet.Readiness, jobs.READY),
        (schemas_fleet.Readiness, jobs.NOT_READY),
        (schemas_fleet.ProblemOut, jobs.PROBLEM),
        (Transcript, jobs.TRANSCRIPT),
        (Lattice, LATTICE),
        (batch_schemas.BatchUploadRequest, batches.BATCH_UPLOAD_REQUEST),
        (batch_schemas.BatchRequest, batches.BATCH_REQUEST),
        (batch_schemas.BatchOut, batches.BATCH),
        (batch_schemas.BatchDetail, batches.BATCH_DETAIL),
        (batch_schemas.BatchPage, batches.BATCH_PAGE),
        (batch_schemas.BatchRetried, batches.BATCH_RETRIED),
        (version_schemas.RerunRequest, versions.RERUN),
        (version_schemas.VersionList, versions.VERSIONS),
        (version_schemas.DiffOut, versions.DIFF),
        (version_schemas.BatchDiff, versions.BATCH_DIFF),
        (search_schemas.SearchPage, search.SEARCH_PAGE),
        (upload_schemas.NewUploadRequest, uploads.REQUEST),
        (upload_schemas.UploadOut, uploads.UPLOAD),
        (upload_schemas.UploadOut, uploads.COMPLETE),
        (upload_schemas.PartPage, uploads.PARTS),
        (webhook_schemas.WebhookRequest, webhooks.REQUEST),
        (webhook_schemas.WebhookOut, webhooks.WEBHOOK),
        (webhook_schemas.WebhookSecret, webhooks.MADE),
        (webhook_schemas.WebhookSecret, webhooks.ROTATED),
        (webhook_schemas.WebhookList, webhooks.LIST),
        (webhook_schemas.DeliveryOut, webhooks.DELIVERY),
        (webhook_schemas.DeliveryPage, webhooks.DELIVERIES),
        (batch_schemas.BatchResult, batches.RESULT),
        (source_schemas.SourceRequest, sources.REQUEST),
        (source_schemas.SourceChangeRequest, sources.CHANGE),
        (source_schemas.SourceOut, sources.SOURCE),
        (source_schemas.SourceList, sources.LIST),
        (source_schemas.SourceItemPage, sources.ITEMS),
        (source_schemas.Marked, sources.MARKED),
        (output_schemas.OutputRequest, outputs.OUTPUT),
        (output_schemas.ExportList, outputs.EXPORTS),
        (output_schemas.ConnectionOut, outputs.CONNECTION),
        (output_schemas.ConnectionList, outputs.CONNECTIONS),
    ],
)
def test_examples_are_what_they_are_examples_of(schema: type[BaseModel], example: dict[str, Any]) -> None:
    """An example has no field that does not exist, and reads as it would be sent."""
    read = schema.model_validate(example, extra="forbid")
    sent = read.model_dump(mode="json", exclude_unset=True)
    assert sent == example


def test_the_kaldi_example_is_of_the_lattice_beside_it() -> None:
    assert format_entry(Lattice.model_validate(LATTICE), "Reel_42") == KALDI


def test_the_page_itself_is_served(http: Any) -> None:
    assert http.get("/openapi.json").json()["info"]["title"] == "Spool"
    shown = http.get("/docs").text
    assert "//" not in shown.replace("<!doctype html>", "")
    for path in re.findall(r'(?:src|href)="([^"]+)"', shown):
        answer = http.get(path)
        assert answer.status_code == 200, path
        known = http.get(path, headers={"If-None-Match": answer.headers.get("etag", "")})
        assert path == "/openapi.json" or known.status_code == 304
