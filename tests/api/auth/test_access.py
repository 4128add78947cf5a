"""Every route there is, times every kind of caller. A new route without a rule fails here."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from sqlalchemy import delete, insert

from api.app import create_app
from api.auth.authentication import authenticate, authenticate_websocket
from api.routes.audio import authenticate_listener
from api.routing import OPEN, SCOPES
from ops.testbed.running_api import Live, file_job, problem, start
from spool.domain import Scope, key_id_of, mint_key
from spool.ids import new_id
from spool.settings import Settings, load_settings
from spool.store import batch_jobs, create_upload, get_job, now_utc, revoke_key
from spool.store.archive.closures import lift_closure
from spool.tables import voice_prints, voices
from spool.tables.uploads import NewUpload
from tests.api.auth.keys import BOTH, admin_key, bearer, get, new_key, post

# Pages that describe the API and hold nothing of anybody.
PAGES = {"GET /openapi.json", "ANY /docs", "GET /page/{name}"}
OUR_KEY = r"jobs/job_[0-9A-Z]{26}/(source|transcript\.1\.json)|language-models/[0-9a-f]{64}\.arpa"
STRANGERS = ("none", "garbage", "unknown", "revoked", "expired")
SECRET = "the minister's tapes"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
NDJSON = {"Content-Type": "application/x-ndjson"}
ARPA = b"\\data\\\nngram 1=1\n\n\\1-grams:\n-1\t</s>\n\n\\end\\\n"


def routes(app: FastAPI) -> Iterator[tuple[str, Any, list[Any]]]:
    """Each method of each route, with the route and what its router depends on."""
    for found in app.routes:
        router = getattr(found, "original_router", None)
        for route in router.routes if router is not None else [found]:
            depends = [*getattr(router, "dependencies", []), *getattr(route, "dependencies", [])]
            for method in sorted((getattr(route, "methods", None) or {"ANY"}) - {"HEAD"}):
                method = "GET" if isinstance(route, APIWebSocketRoute) else method
                yield f"{method} {getattr(route, 'path', route)}", route, depends


def test_every_route_has_its_rule() -> None:
    found = {name: (route, depends) for name, route, depends in routes(create_app(load_settings({})))}
    assert set(found) == set(SCOPES) | OPEN | PAGES
    for name in SCOPES:
        route, depends = found[name]
        assert isinstance(route, APIRoute | APIWebSocketRoute)
        own = [each.call for each in route.dependant.dependencies]
        found_by = [*own, *(each.dependency for each in depends)]
        assert {authenticate, authenticate_listener, authenticate_websocket} & set(found_by), (
            f"{name} lets everybody in"
        )


@dataclass
class Estate:
    """A server with two projects, and something of the first one's under every kind of id."""

    live: Live
    keys: dict[str, str | None]
    parameters: dict[str, str]
    bodies: dict[str, dict[str, Any]]
    http: httpx.Client

    def ask(self, name: str, caller: str) -> httpx.Response:
        method, path = name.split(" ", 1)
        key = self.keys[caller]
        if "{voice_id}" in name:
            self.make_voice()
        if "{revision}" in name:  # each is undone once
            edit = self.ask("POST /v1/jobs/{job_id}/edits", "submitter").json()
            self.parameters["revision"] = str(edit.get("revision", 1))
        parts = dict(self.bodies.get(name, {}))
        headers = parts.pop("headers", {}) | (bearer(key) if key else {})
        # A parameter that is not known here: say in `estate` what there is of it.
        url = self.live.url + path.format_map(self.parameters)
        answer = self.http.request(method, url, headers=headers, **parts)
        if "closures" in name and answer.status_code == 201:  # open again, for the other routes
            with self.live.services.database.begin() as tx:
                self.parameters["closure_id"] = lift_closure(tx, answer.json()["id"], "operator").id
        if answer.status_code == 204:  # gone, unlike what other routes end
            self.make_removable()
        return answer

    def make_voice(self) -> None:
        """A voice that somebody named; one without a print would be gone with the next change."""
        voice_id = self.parameters["voice_id"] = new_id("voi")
        with self.live.services.database.begin() as tx:
            tx.execute(delete(voice_prints))
            tx.execute(
                insert(voices).values(id=voice_id, project="alpha", name=voice_id, created_at=now_utc())
            )
            job = {"job_id": self.parameters["job_id"], "label": "speaker_0", "voice_id": voice_id}
            tx.execute(insert(voice_prints).values(**job, encoder="0" * 64, print=b""))

    def make_removable(self) -> None:
        """A webhook of the first project that was sent something, a source and a connection of it."""
        self.ask("POST /v1/sources", "submitter")
        self.parameters["source_id"] = self.ask("GET /v1/sources", "reader").json()["items"][0]["id"]
        self.ask("POST /v1/connections", "admin")
        self.parameters["name"] = "theirs"
        self.parameters["glossary"] = name = "first-glossary"  # other callers may have equal names
        body = {"name": name, "phrases": ["Heligoland"]}
        key = bearer(self.keys["submitter"] or "")
        assert post(f"{self.live.url}/v1/glossaries", json=body, headers=key).status_code == 201
        self.parameters["language_model"] = name = "first-model"
        form = {"request": (None, json.dumps({"name": name})), "file": ("a.arpa", ARPA)}
        assert post(f"{self.live.url}/v1/language-models", files=form, headers=key).status_code == 201
        with self.live.services.database.begin() as tx:
            new = NewUpload("alpha", new_id("job"), SECRET, 1, 1, None, "audio/wav", "1")
            self.parameters["upload_id"] = create_upload(tx, new, 1).id
        self.parameters["webhook_id"] = self.ask("POST /v1/webhooks", "submitter").json()["id"]
        sent = self.ask("POST /v1/webhooks/{webhook_id}/test", "submitter").json()
        self.parameters["delivery_id"] = sent["id"]


def bodies_of(recordings: Any) -> dict[str, dict[str, Any]]:
    """What the routes are asked with, by the route."""
    manifest = f'{{"source": "{file_job(recordings)["source"]}", "name": "{SECRET}"}}'
    return {
        "POST /v1/jobs": {"json": file_job(recordings)},
        "POST /v1/batches": {"content": manifest, "headers": NDJSON},
        "POST /v1/sources": {"json": {"source": Path(recordings).as_uri()}},
        "POST /v1/sources/notifications": {"json": {"Records": []}},
        "POST /v1/connections": {
            "json": {
                "name": "theirs",
                "project": "alpha",
                "prefix": "s3://theirs/",
                "key_id": "k",
                "secret": SECRET,
            }
        },
        "DELETE /v1/connections/{name}": {"params": {"project": "alpha"}},
        "GET /v1/glossaries/{glossary}": {"params": {"project": "alpha"}},
        "DELETE /v1/glossaries/{glossary}": {"params": {"project": "alpha"}},
        "GET /v1/language-models/{language_model}": {"params": {"project": "alpha"}},
        "DELETE /v1/language-models/{language_model}": {"params": {"project": "alpha"}},
        "POST /v1/language-models": {
            "files": {"request": (None, '{"name": "parish"}'), "file": ("a.arpa", ARPA)}
        },
        "POST /v1/glossaries": {"json": {"name": "lighthouses", "phrases": ["Heligoland"]}},
        "POST /v1/uploads": {"json": {"name": "reel.flac", "bytes": 5}},
        "POST /v1/webhooks": {"json": {"url": "https://nowhere.invalid/hook"}},
        "POST /v1/audio/transcriptions": {"files": {"file": b"RIFF"}},
        "POST /v1/audio/translations": {"files": {"file": b"RIFF"}},
        "POST /v1/jobs/{job_id}/diarize": {"json": {}},
        "POST /v1/jobs/{job_id}/edits": {"json": {"first_word": 0, "last_word": 0, "text": "a", "seen": 999}},
        "POST /v1/jobs/{job_id}/edits/{revision}/undo": {"json": {}},
        "POST /v1/jobs/{job_id}/edits/{revision}/spread": {"json": {"places": []}},
        "POST /v1/jobs/{job_id}/edits/{revision}/spread/undo": {"json": {}},
        "POST /v1/jobs/{job_id}/passages/{passage}/check": {"json": {}},
        "POST /v1/jobs/{job_id}/closures": {"json": {"kind": "whole"}},
        "POST /v1/jobs/{job_id}/closure-suggestions": {"json": {"kind": "name", "text": "Ada"}},
        "POST /v1/jobs/{job_id}/rerun": {"json": {}},
        "POST /v1/review/samples": {"json": {}},
        "GET /v1/search": {"params": {"q": "keep"}},
        **{
            f"GET /v1/jobs/{{job_id}}/clip{part}": {"params": {"start": 0, "end": 0.5}}
            for part in ("", "/transcript", "/audio")
        },
        "GET /v1/listen": {"headers": UPGRADE, "params": {"model": "demo-tdt"}},
        "GET /v1/listen/wenet": {"headers": UPGRADE, "params": {"model": "demo-tdt"}},
        "GET /v1/realtime": {"headers": UPGRADE, "params": {"model": "demo-tdt"}},
        "PUT /v1/models/default": {"json": {"name": "demo-tdt"}},
        "PATCH /v1/sources/{source_id}": {"json": {"name": "Incoming"}},
        "PATCH /v1/jobs/{job_id}/speakers": {"json": {"names": {"speaker_0": "Ada"}}},
    }


@pytest.fixture
def estate(settings: Settings, recordings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Estate]:
    monkeypatch.setattr("api.routes.openai.WAIT_SECONDS", 0.0)
    monkeypatch.setattr("api.services._GUESSES", 1000)  # each route is tried with a wrong key
    running = start(settings.model_copy(update={"live_open_seconds": 1e-3}))
    live, database = running.live, running.live.services.database
    keys: dict[str, str | None] = {
        "none": None,
        "garbage": "spool_nothing",
        "unknown": mint_key().text,
        "revoked": new_key(database),
        "expired": new_key(database, expires_at=datetime(2020, 1, 1, tzinfo=UTC)),
        "other": new_key(database, "beta", BOTH),
        "reader": new_key(database, "alpha", (Scope.READ,)),
        "submitter": new_key(database, "alpha", (Scope.SUBMIT,)),
        "archivist": new_key(database, "alpha", (Scope.CLOSED,)),
        "admin": admin_key(database),
    }
    with database.begin() as tx:
        revoke_key(tx, key_id_of(keys["revoked"] or "") or "")
    bodies = bodies_of(recordings)
    http = httpx.Client(timeout=60, verify=False)
    try:
        made = Estate(live, keys, {}, bodies, http)
        job = made.ask("POST /v1/jobs", "submitter").json()
        batch = made.ask("POST /v1/batches", "submitter").json()
        live.work().finish(job["id"])
        with database.read() as tx:
            (line,) = batch_jobs(tx, batch["id"], None, 2)
        live.work().finish(line.id)  # so that a stream of its events ends
        made.parameters = {"job_id": job["id"], "passage": "0", "batch_id": batch["id"]}
        made.parameters["model"] = "demo-tdt"
        bodies["GET /v1/jobs/{job_id}/diff"] = {"params": {"with": line.id}}
        made.ask("POST /v1/jobs/{job_id}/closures", "submitter")
        sample = made.ask("POST /v1/review/samples", "submitter").json()
        made.parameters["sample_id"] = sample["id"]
        made.make_removable()
        yield made
    finally:
        http.close()
        running.close()


def test_every_route_for_every_caller(estate: Estate) -> None:
    wrong = []
    for name, needed in SCOPES.items():
        statuses = {caller: estate.ask(name, caller).status_code for caller in estate.keys}
        expected = dict.fromkeys(STRANGERS, "401")
        scopes: dict[str, set[Any]] = {
            "reader": {Scope.READ},
            "submitter": {Scope.SUBMIT},
            "archivist": {Scope.CLOSED},
            "other": set(BOTH),
            "admin": {needed},
        }
        for caller, has in scopes.items():
            allowed = needed is None or needed in has
            theirs = caller != "other" or "{" not in name.replace("{model}", "")  # models are everybody's
            names_project = "project" in estate.bodies.get(name, {}).get("params", {})
            refused = not allowed or (names_project and not theirs)
            expected[caller] = "403" if refused else "answered" if theirs else "404"
        for caller, status in statuses.items():
            # 503: nobody takes the live session.
            shown = "answered" if status < 300 or status in (409, 410, 503, 504) else str(status)
            if shown != expected[caller]:
                wrong.append(f"{name} for {caller}: {status}, not {expected[caller]}")
    assert not wrong, "\n".join(wrong)


def test_nothing_of_one_project_shows_in_the_answers_to_another(estate: Estate) -> None:
    # Given work of alpha's, which alpha sees
    ids = [value for name, value in estate.parameters.items() if name not in ("passage", "model")]
    hidden = [*ids, SECRET, "alpha"]
    assert any(text in estate.ask("GET /v1/batches", "reader").text for text in hidden)
    assert float(estate.ask("GET /v1/costs", "reader").json()["total"]["billable"]) > 0

    # Then beta finds nothing of it in any list, sum or filter
    for name in SCOPES:
        if name.startswith("GET") and "{" not in name:
            answer = estate.ask(name, "other")
            assert not [text for text in hidden if text in answer.text], name
    costs = estate.ask("GET /v1/costs", "other").json()
    assert (costs["rows"], costs["total"]["billable"], costs["idle_cost"]) == ([], "0", None)
    for path in ("/v1/jobs", "/v1/batches"):
        for project in ("alpha", "nowhere"):
            asked = get(
                f"{estate.live.url}{path}",
                params={"project": project},
                headers=bearer(estate.keys["other"] or ""),
            )
            assert asked.json() == {"items": [], "next_cursor": None}


def test_what_is_another_projects_is_missing_in_the_same_words(estate: Estate) -> None:
    there = estate.ask("GET /v1/jobs/{job_id}", "other").json()
    estate.parameters["job_id"] = missing = "job_01JD5T9Q4X8K2M6N0P3R7S1V5W"
    nowhere = estate.ask("GET /v1/jobs/{job_id}", "other").json()
    assert there["detail"].split()[:-1] == nowhere["detail"].split()[:-1] == ["There", "is", "no", "job"]
    assert {key: value for key, value in there.items() if key not in ("detail", "instance")} == {
        key: value for key, value in nowhere.items() if key not in ("detail", "instance")
    }
    assert missing in nowhere["detail"]


def test_what_is_handed_in_is_the_keys_projects(estate: Estate, recordings: Any) -> None:
    url = f"{estate.live.url}/v1/jobs"
    own, other = bearer(estate.keys["other"] or ""), bearer(estate.keys["admin"] or "")

    job = post(url, json=file_job(recordings), headers=own).json()
    assert job["project"] == "beta"
    assert post(url, json=file_job(recordings, project="beta"), headers=own).status_code == 202
    problem(post(url, json=file_job(recordings, project="alpha"), headers=own), 403, "forbidden")
    form = {"request": (None, '{"project": "alpha"}', "application/json"), "file": ("a.wav", b"RIFF")}
    problem(post(url, files=form, headers=own), 403, "forbidden")
    batches = f"{estate.live.url}/v1/batches"
    asked = {"source": f"{recordings.as_uri()}/", "project": "alpha"}
    problem(post(batches, json=asked, headers=own), 403, "forbidden")

    # An admin key hands in for whom it likes
    assert post(url, json=file_job(recordings, project="gamma"), headers=other).json()["project"] == "gamma"
    # And the job knows by which key it came
    with estate.live.services.database.read() as tx:
        assert get_job(tx, job["id"]).key_id == key_id_of(estate.keys["other"] or "")


def test_no_key_of_an_object_is_made_of_what_was_sent(estate: Estate) -> None:
    url, own = estate.live.url, bearer(estate.keys["submitter"] or "")
    names = [
        "../../../etc/passwd",
        "jobs/x/../../y",
        "a\\b",
        "%2e%2e%2f",
        "..",
        "reel\u0000.wav",
        "\u202egnp.wav",
    ]
    for name in names:
        form = {
            "request": (
                None,
                json.dumps({"project": "alpha", "tags": {"a": name[:9].strip("\0")}}),
                "application/json",
            ),
            "file": (name, b"RIFF", f"audio/{name}".encode("unicode_escape").decode()),
        }
        sent = post(f"{url}/v1/jobs", files=form, headers=own | {"Idempotency-Key": "../" + "x" * len(name)})
        assert sent.status_code in (200, 202, 409, 422), sent.text
    kept = [info.key for info in estate.live.services.objects.list()]
    assert len(kept) > len(names) // 2
    assert not [key for key in kept if not re.fullmatch(OUR_KEY, key)]


def test_idempotency_keys_of_two_projects_know_nothing_of_each_other(estate: Estate, recordings: Any) -> None:
    url = f"{estate.live.url}/v1/jobs"
    repeated = {"Idempotency-Key": "monday"}
    first = post(url, json=file_job(recordings), headers=bearer(estate.keys["submitter"] or "") | repeated)
    other = post(
        url, json=file_job(recordings, name="x"), headers=bearer(estate.keys["other"] or "") | repeated
    )
    assert (first.status_code, other.status_code) == (202, 202)
    assert first.json()["id"] != other.json()["id"]
