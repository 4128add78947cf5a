"""The OpenAPI page: every operation has its words, a valid example of each answer, and its problems."""

import re
from typing import Any

import jsonschema
import pytest

from api.app import create_app
from api.routing import DOCUMENTED
from spool.schemas import ProblemOut
from spool.settings import load_settings

METHODS = ("get", "post", "delete", "put", "patch")


each_operation = pytest.mark.parametrize("name", sorted(name for _, name in DOCUMENTED))


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    return create_app(load_settings({})).openapi()


@pytest.fixture(scope="module")
def operations(page: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": item[method]
        for path, item in page["paths"].items()
        for method in METHODS
        if method in item
    }


@pytest.fixture
def operation(operations: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    return operations[name]


def test_every_route_is_on_the_page(operations: dict[str, dict[str, Any]]) -> None:
    named = {"DELETE /v1/jobs/{job_id}", "GET /healthz", "GET /metrics", "POST /v1/audio/transcriptions"}
    assert named <= set(operations)
    assert sorted(operations) == sorted(name for _, name in DOCUMENTED)


@each_operation
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


@each_operation
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


def test_every_reference_leads_somewhere(page: dict[str, Any]) -> None:
    defined = set(page["components"]["schemas"])

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [ref for value in node.values() for ref in references(value)]
        if isinstance(node, list):
            return [ref for value in node for ref in references(value)]
        return []

    for reference in references(page):
        assert reference.startswith("#/components/schemas/"), reference
        assert reference.rpartition("/")[2] in defined, reference
    assert "HTTPValidationError" not in defined


@each_operation
def test_examples_are_what_they_are_examples_of(
    page: dict[str, Any], name: str, operation: dict[str, Any]
) -> None:
    contents = [answer.get("content", {}) for answer in operation["responses"].values()]
    for content in (*contents, operation.get("requestBody", {}).get("content", {})):
        shown = content.get("application/json", {})
        examples = [each["value"] for each in shown.get("examples", {}).values()] or [shown.get("example")]
        for example in examples if shown else ():
            jsonschema.validate(example, shown["schema"] | {"components": page["components"]})


def test_the_page_itself_is_served(http: Any) -> None:
    assert http.get("/openapi.json").json()["info"]["title"] == "Spool"
    shown = http.get("/docs").text
    assert "//" not in shown.replace("<!doctype html>", "")
    for path in re.findall(r'(?:src|href)="([^"]+)"', shown):
        answer = http.get(path)
        assert answer.status_code == 200, path
        known = http.get(path, headers={"If-None-Match": answer.headers.get("etag", "")})
        assert path == "/openapi.json" or known.status_code == 304
