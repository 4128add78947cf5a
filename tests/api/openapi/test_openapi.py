"""The OpenAPI page: every operation has its words, a valid example of each answer, and its problems."""

import re
from typing import Any

import jsonschema
import pytest

from api.app import create_app
from spool.schemas import ProblemOut
from spool.settings import load_settings

METHODS = ("get", "post", "delete", "put", "patch")


PAGE: dict[str, Any] = create_app(load_settings({})).openapi()


def operations() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", item[method])
        for path, item in PAGE["paths"].items()
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
                ProblemOut.model_validate(example["value"], extra="forbid")
                assert example["value"]["status"] == int(status)
    if "/v1/" in name:
        assert {"401", "422", "503"} <= set(operation["responses"])
        assert operation["security"]


def test_every_reference_leads_somewhere() -> None:
    defined = set(PAGE["components"]["schemas"])

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [ref for value in node.values() for ref in references(value)]
        if isinstance(node, list):
            return [ref for value in node for ref in references(value)]
        return []

    for reference in references(PAGE):
        assert reference.startswith("#/components/schemas/"), reference
        assert reference.rpartition("/")[2] in defined, reference
    assert "HTTPValidationError" not in defined


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_examples_are_what_they_are_examples_of(name: str, operation: dict[str, Any]) -> None:
    contents = [answer.get("content", {}) for answer in operation["responses"].values()]
    for content in (*contents, operation.get("requestBody", {}).get("content", {})):
        shown = content.get("application/json", {})
        examples = [each["value"] for each in shown.get("examples", {}).values()] or [shown.get("example")]
        for example in examples if shown else ():
            jsonschema.validate(example, shown["schema"] | {"components": PAGE["components"]})


def test_the_page_itself_is_served(http: Any) -> None:
    assert http.get("/openapi.json").json()["info"]["title"] == "Spool"
    shown = http.get("/docs").text
    assert "//" not in shown.replace("<!doctype html>", "")
    for path in re.findall(r'(?:src|href)="([^"]+)"', shown):
        answer = http.get(path)
        assert answer.status_code == 200, path
        known = http.get(path, headers={"If-None-Match": answer.headers.get("etag", "")})
        assert path == "/openapi.json" or known.status_code == 304
