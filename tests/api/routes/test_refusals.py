"""Everything that is refused: sources outside the roots, unknown models, malformed requests, wrong tokens."""

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from pydantic import SecretStr

from api.server.run import serve
from ops.testbed.running_api import Live, file_job, problem, start
from spool.errors import SettingsError
from spool.settings import Settings

JSON = {"Content-Type": "application/json"}

FORBIDDEN = [
    "file:///etc/passwd",
    "file:///etc//passwd",
    "file:///%65tc/passwd",
    "file://localhost/etc/passwd",
    "FILE:///etc/passwd",
    "file:///nowhere/at/all.wav",
    "file:///proc/self/environ",
]


@pytest.mark.parametrize("source", FORBIDDEN)
def test_a_path_outside_the_roots_is_forbidden(http: httpx.Client, source: str) -> None:
    problem(http.post("/v1/jobs", json={"source": source}), 403, "source_forbidden")
    assert http.get("/v1/jobs").json()["items"] == []


def test_a_bare_path_is_answered_with_the_address_that_it_has(http: httpx.Client) -> None:
    refused = problem(http.post("/v1/jobs", json={"source": "/box 7/ü.wav"}), 422, "invalid_request")
    assert refused["detail"].endswith("Write this path as file:///box%207/%C3%BC.wav.")


@pytest.mark.parametrize("step", ["..", "%2e%2e", "%2E%2E", ".%2e", "x/../.."])
def test_a_path_that_climbs_out_of_a_root_is_forbidden(
    http: httpx.Client, recordings: Path, step: str
) -> None:
    (recordings.parent / "secret.wav").write_bytes(b"RIFF")
    source = f"{recordings.as_uri()}/{step}/secret.wav"
    problem(http.post("/v1/jobs", json={"source": source}), 403, "source_forbidden")


def test_what_is_encoded_twice_is_decoded_once(http: httpx.Client, recordings: Path) -> None:
    (recordings.parent / "secret.wav").write_bytes(b"RIFF")
    source = f"{recordings.as_uri()}/%252e%252e/secret.wav"
    problem(http.post("/v1/jobs", json={"source": source}), 422, "source_missing")


def test_a_root_is_no_prefix_of_a_name(http: httpx.Client, recordings: Path) -> None:
    sibling = recordings.with_name(recordings.name + "-private")
    sibling.mkdir()
    (sibling / "a.wav").write_bytes(b"RIFF")
    problem(http.post("/v1/jobs", json={"source": (sibling / "a.wav").as_uri()}), 403, "source_forbidden")


def test_links_are_followed_before_a_path_is_judged(http: httpx.Client, recordings: Path) -> None:
    # Given links in the root to a file and a folder outside, to a file inside, and to itself
    secret = recordings.parent / "secret"
    secret.mkdir()
    (secret / "a.wav").write_bytes(b"RIFF")
    (recordings / "file.wav").symlink_to(secret / "a.wav")
    (recordings / "folder").symlink_to(secret)
    (recordings / "inside.wav").symlink_to(recordings / "reel 1.wav")
    (recordings / "loop.wav").symlink_to(recordings / "loop.wav")

    def answer(name: str) -> httpx.Response:
        return http.post("/v1/jobs", json={"source": f"{recordings.as_uri()}/{name}"})

    # Then only what ends inside is taken, under its real name
    problem(answer("file.wav"), 403, "source_forbidden")
    problem(answer("folder/a.wav"), 403, "source_forbidden")
    assert answer("loop.wav").status_code in (403, 422)
    taken = answer("inside.wav")
    assert taken.status_code == 202
    assert taken.json()["source"]["uri"] == (recordings / "reel 1.wav").as_uri()


def test_what_is_not_a_file_is_missing(http: httpx.Client, recordings: Path) -> None:
    os.mkfifo(recordings / "pipe.wav")
    for name in ("gone.wav", "pipe.wav", ""):
        source = f"{recordings.as_uri()}/{name}"
        problem(http.post("/v1/jobs", json={"source": source}), 422, "source_missing")


@pytest.mark.parametrize(
    "source",
    [
        "",
        "reel.wav",
        "/etc/passwd",
        "file://",
        "file://server/share/a.wav",
        "file:///a.wav?x=1",
        "file:///a%00.wav",
        "file:///a\u0000.wav",
        "s3://",
        "s3://bucket",
        "s3://bucket/",
        "s3://bucket/prefix/",
        "s3://Bucket_with_faults/key",
        "s3://bucket/" + "k" * 1025,
        "https://",
        "https:///a.wav",
        "https://user:secret@example.org/a.wav",
        "https://example.org:99999/a.wav",
        "https://example.org\\@evil.example/a.wav",
        "https://[::1/a.wav",
        "https://xn--/a.wav",
        "https://a..example.org/a.wav",
        " https://example.org/a.wav",
        "https://example.org/a.wav\n",
        "https://example.org/\ud800.wav",
    ],
)
def test_an_address_that_names_nothing_is_refused(http: httpx.Client, source: str) -> None:
    response = http.post("/v1/jobs", content=f'{{"source": {json.dumps(source)}}}', headers=JSON)
    problem(response, 422, "invalid_request")
    assert "secret" not in response.text


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:8443", "127.1", "0x7f.1", "10.0.0.1", "[::1]", "169.254.169.254"]
)
def test_a_host_that_is_not_public_is_forbidden(http: httpx.Client, host: str) -> None:
    response = http.post("/v1/jobs", json={"source": f"https://{host}/a.wav"})
    problem(response, 403, "source_forbidden")


def test_a_name_on_disk_that_is_not_utf_8_is_taken(http: httpx.Client, recordings: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(recordings) + b"/Gespr\xe4ch.wav"))
    try:
        path.write_bytes(b"RIFF")
    except OSError:  # a file system (APFS) that takes UTF-8 alone
        assert sys.platform == "darwin"
        return
    job = http.post("/v1/jobs", json={"source": f"{recordings.as_uri()}/Gespr%E4ch.wav"}).json()
    assert job["source"]["uri"] == f"{recordings.as_uri()}/Gespr%E4ch.wav"
    assert job["name"] == "Gespr\ufffdch.wav"


@pytest.mark.parametrize("source", ["http://example.org/a.wav", "ftp://example.org/a.wav", "gopher://x/1"])
def test_other_schemes_are_forbidden(http: httpx.Client, source: str) -> None:
    problem(http.post("/v1/jobs", json={"source": source}), 403, "source_forbidden")


@pytest.mark.parametrize(
    ("source", "name", "shown"),
    [
        ("s3://bucket.name/a/b c?d#e%20.wav", "b c?d#e%20.wav", "s3://bucket.name/a/b c?d#e%20.wav"),
        ("https://example.org/a%20b.mp3?sig=abc", "a b.mp3", "https://example.org/a%20b.mp3"),
        ("HTTPS://example.org", "https", "https://example.org"),
    ],
)
def test_remote_addresses_are_taken_as_they_are_meant(
    http: httpx.Client, source: str, name: str, shown: str
) -> None:
    job = http.post("/v1/jobs", json={"source": source}).json()
    assert job["name"] == name
    # The query of a signed address is a secret and is not shown again.
    assert job["source"]["uri"] == shown


# Requests


def test_an_unknown_model_is_named_with_those_known(http: httpx.Client, recordings: Path) -> None:
    response = http.post("/v1/jobs", json=file_job(recordings, options={"model": "parakeet-9"}))
    body = problem(response, 422, "unknown_model")
    assert body["detail"] == "There is no model 'parakeet-9'. Available models: demo-tdt."


@pytest.mark.parametrize(
    ("request_part", "where"),
    [
        ({"options": {"decoder": "magic"}}, "options.decoder"),
        ({"options": {"beam": 0}}, "options.beam"),
        ({"options": {"temperature": 1}}, "options.temperature"),
        ({"options": {"\ud800": 1}}, "options"),
        ({"options": []}, "options"),
        ({"project": "a/b"}, "project"),
        ({"pool": "../x"}, "pool"),
        ({"worker": "a b"}, "worker"),
        ({"name": "a\u0007b"}, "name"),
        ({"name": ""}, "name"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_field_that_is_wrong_is_named(
    http: httpx.Client, recordings: Path, request_part: dict[str, Any], where: str
) -> None:
    content = json.dumps(file_job(recordings, **request_part))
    body = problem(http.post("/v1/jobs", content=content, headers=JSON), 422, "invalid_request")
    errors = body["errors"]
    assert isinstance(errors, list)
    assert [error["where"] for error in errors] == [where]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 50_000])
def test_what_is_not_json_is_refused(http: httpx.Client, content: bytes) -> None:
    problem(http.post("/v1/jobs", content=content, headers=JSON), 400, "invalid_request")


@pytest.mark.parametrize("content", [b"[]", b"null", b'"x"', b"{}"])
def test_json_of_another_shape_is_refused(http: httpx.Client, content: bytes) -> None:
    problem(http.post("/v1/jobs", content=content, headers=JSON), 422, "invalid_request")


def test_a_request_that_is_too_large_is_refused(http: httpx.Client) -> None:
    content = b'{"source": "' + b"x" * (16 * 2**20) + b'"}'
    problem(http.post("/v1/jobs", content=content, headers=JSON), 413, "too_large")


def test_another_kind_of_body_is_refused(http: httpx.Client) -> None:
    response = http.post("/v1/jobs", content=b"RIFF", headers={"Content-Type": "audio/wav"})
    problem(response, 415, "unsupported_media_type")
    problem(http.post("/v1/jobs"), 415, "unsupported_media_type")


def test_unknown_paths_and_methods_are_problems_too(http: httpx.Client) -> None:
    problem(http.get("/v1/nothing"), 404, "not_found")
    response = http.put("/v1/jobs")
    body = problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "GET, POST"
    assert body["detail"] == "PUT is not allowed at /v1/jobs; allowed: GET, POST."
    one = http.options("/v1/jobs/job_1")
    problem(one, 405, "method_not_allowed")
    assert one.headers["allow"] == "DELETE, GET"
    # `/v1/models/{model}` and `/v1/sources/{source_id}` match too, and are other pages of the documentation
    assert http.post("/v1/models/default").headers["allow"] == "PUT"
    assert http.put("/v1/sources/notifications").headers["allow"] == "POST"


def test_what_was_not_foreseen_is_told_by_a_reference_alone(
    live: Live, http: httpx.Client, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a job whose transcript's reader has a defect
    job = http.post("/v1/jobs", json=file_job(recordings)).json()
    live.work().finish(job["id"])
    defect = RuntimeError('{"secret": "/home/me"}')
    monkeypatch.setattr("api.presenters.transcripts.read_verified", Mock(side_effect=defect))
    monkeypatch.setattr("api.routes.transcripts.open_verified", Mock(side_effect=defect))

    body = problem(http.get(f"/v1/jobs/{job['id']}/transcript?format=txt"), 500, "internal")

    assert str(body["reference"]) in str(body["detail"])
    assert "secret" not in str(body)
    assert "/home/me" not in str(body)


# Tokens


def test_with_a_token_every_route_but_health_asks_for_it(settings: Settings, recordings: Path) -> None:
    token = "correct horse battery staple"
    running = start(settings.model_copy(update={"api_token": SecretStr(token)}))
    try:
        with httpx.Client(base_url=running.live.url) as http:
            for headers in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": f"Basic {token}"},
                {"Authorization": f"Bearer {token}x"},
            ):
                for path in ("/v1/jobs", "/v1/costs", "/v1/workers", "/v1/models"):
                    response = http.get(path, headers=headers)
                    problem(response, 401, "unauthorized")
                    assert response.headers["www-authenticate"] == "Bearer"
                problem(
                    http.post("/v1/jobs", json=file_job(recordings), headers=headers), 401, "unauthorized"
                )
            assert http.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).json()["items"] == []
            assert http.get("/healthz").status_code == 200
            assert http.get("/readyz").status_code == 200
    finally:
        running.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "127.example.org"])
def test_another_address_than_loopback_needs_a_key(settings: Settings, host: str) -> None:
    with pytest.raises(SettingsError, match="Create a key first"):
        serve(settings.model_copy(update={"api_host": host, "api_port": 0}))
