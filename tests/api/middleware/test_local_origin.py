"""Who is answered by an API without a token, and what every answer says to a browser."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from ops.testbed.running_api import Live, file_job, problem
from spool.settings import Settings

FORM = {"file": ("a.wav", b"RIFF")}


@pytest.fixture
def port(live: Live) -> int:
    port = httpx.URL(live.url).port
    assert port is not None
    return port


def test_this_machine_is_answered_by_any_of_its_names(http: httpx.Client, port: int) -> None:
    for host in ("localhost", "LOCALHOST", f"localhost:{port}", f"127.0.0.1:{port}", "127.0.0.1", "[::1]:80"):
        assert http.get("/v1/jobs", headers={"Host": host}).status_code == 200, host


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8700", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:x",
     "user@localhost", "0.0.0.0", "192.168.1.5:8700", "[::ffff:10.0.0.1]", "[::1", "localhost localhost",
     "", "169.254.1.1"],
)  # fmt: skip
def test_a_name_that_is_made_to_mean_this_machine_is_not_answered(http: httpx.Client, host: str) -> None:
    for path in ("/v1/jobs", "/healthz", "/openapi.json", "/docs", "/nothing"):
        problem(http.get(path, headers={"Host": host}), 421, "misdirected")


def test_a_page_of_another_site_can_submit_nothing(http: httpx.Client, live: Live) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ):
        problem(http.post("/v1/jobs", files=FORM, headers=headers), 403, "cross_origin")
        preflight = http.options(
            "/v1/jobs",
            headers={**headers, "Origin": "https://a.test", "Access-Control-Request-Method": "POST"},
        )
        assert preflight.status_code == 403
        assert not [name for name in preflight.headers if name.startswith("access-control")]
    assert http.get("/v1/jobs").json()["items"] == []


def test_the_own_page_and_a_followed_link_are_let_in(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    own = {"Origin": live.url, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    answer = http.post("/v1/jobs", json=file_job(recordings), headers=own)
    assert answer.status_code == 202
    assert not [name for name in answer.headers if name.startswith("access-control")]
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert http.get("/docs", headers=link).status_code == 200
    assert http.get("/docs", headers={"Sec-Fetch-Site": "none"}).status_code == 200


def test_with_a_token_the_name_is_free(settings: Settings, start_api: Callable[[Settings], Live]) -> None:
    token = "correct horse battery staple"
    live = start_api(settings.model_copy(update={"api_token": SecretStr(token)}))
    bearer = {"Authorization": f"Bearer {token}", "Host": "spool.example", "Origin": "https://desk.example"}
    assert httpx.get(f"{live.url}/v1/jobs", headers=bearer, timeout=60).status_code == 200


def test_every_answer_tells_browsers_to_do_nothing_with_it(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    job = http.post("/v1/jobs", json=file_job(recordings)).json()
    live.work().finish(job["id"])
    live.services.objects.put_bytes(f"jobs/{job['id']}/transcript.1.json", b"spoilt")
    for path, status in (
        ("/v1/jobs", 200),
        (f"/v1/jobs/{job['id']}/transcript?format=txt", 503),
        ("/v1/nothing", 404),
        ("/docs", 200),
        ("/healthz", 200),
    ):
        answer = http.get(path)
        assert answer.status_code == status
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'none'" in policy
        assert "http" not in policy
        assert (answer.headers.get("cache-control") == "no-store") == path.startswith("/v1/")
