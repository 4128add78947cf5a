"""Recordings through the API: whole, in part, by key and by link."""

import io
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from api.recordings.ranges import parse_range
from ops.testbed.running_api import Live, file_job, problem
from spool.domain import Scope
from spool.store import create_key, revoke_key


def wav(seconds: float = 1.0) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, [0.0, 0.25] * round(seconds * 4000), 8000, format="WAV", subtype="PCM_16")
    return file.getvalue()


def uploaded(http: httpx.Client, sound: bytes, name: str = "tape.wav") -> str:
    response = http.post("/v1/jobs", files={"file": (name, sound)})
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def test_the_recording_comes_whole_and_in_part(http: httpx.Client) -> None:
    sound = wav()
    path = f"/v1/jobs/{uploaded(http, sound)}/audio"
    whole = http.get(path)
    assert (whole.status_code, whole.content) == (200, sound)
    assert whole.headers["content-type"] in ("audio/x-wav", "audio/wav")
    assert whole.headers["accept-ranges"] == "bytes"
    for asked, part in (("0-99", sound[:100]), ("44-", sound[44:]), ("-10", sound[-10:])):
        answer = http.get(path, headers={"Range": f"bytes={asked}"})
        assert (answer.status_code, answer.content) == (206, part)
        first = sound.index(part) if asked != "-10" else len(sound) - 10
        expected = f"bytes {first}-{first + len(part) - 1}/{len(sound)}"
        assert answer.headers["content-range"] == expected
    refused = http.get(path, headers={"Range": f"bytes={len(sound)}-"})
    problem(refused, 416, "no_such_range")
    assert refused.headers["content-range"] == f"bytes */{len(sound)}"


def test_a_file_under_a_root_is_passed_on_and_one_elsewhere_is_not(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    job = http.post("/v1/jobs", json=file_job(recordings)).json()["id"]
    # What no worker has decoded need not be a recording at all
    problem(http.get(f"/v1/jobs/{job}/audio"), 409, "not_here")
    problem(http.post(f"/v1/jobs/{job}/audio-link"), 409, "not_here")
    worker = live.work()
    worker.progress(worker.claim(job), done=1.0, total=2.0)
    assert http.get(f"/v1/jobs/{job}/audio").content == (recordings / "reel 1.wav").read_bytes()
    (recordings / "reel 1.wav").unlink()
    problem(http.get(f"/v1/jobs/{job}/audio"), 404, "not_found")
    web = http.post("/v1/jobs", json={"source": "https://example.org/talk.mp3"}).json()["id"]
    problem(http.get(f"/v1/jobs/{web}/audio"), 409, "not_here")
    problem(http.post(f"/v1/jobs/{web}/audio-link"), 409, "not_here")
    worker.progress(worker.claim(web), done=1.0, total=2.0)
    assert http.post(f"/v1/jobs/{web}/audio-link").json()["url"] == "https://example.org/talk.mp3"
    signed = http.post("/v1/jobs", json={"source": "https://example.org/talk.mp3?key=secret"}).json()["id"]
    worker.progress(worker.claim(signed), done=1.0, total=2.0)
    told = problem(http.post(f"/v1/jobs/{signed}/audio-link"), 409, "not_here")
    assert "secret" not in str(told)


def test_what_is_no_sound_is_never_shown_as_a_page(http: httpx.Client) -> None:
    answer = http.get(f"/v1/jobs/{uploaded(http, b'<script>', 'x.html')}/audio")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_link_opens_its_recording_for_who_has_no_key(http: httpx.Client, live: Live) -> None:
    sound = wav()
    with live.services.database.begin() as tx:
        key = create_key(tx, "listener", "default", [Scope.READ, Scope.SUBMIT])
        foreign = create_key(tx, "stranger", "other", [Scope.READ]).text
    live.services.key_cache.check_required()
    bearer = {"Authorization": f"Bearer {key.text}"}
    job, other = (
        http.post("/v1/jobs", files={"file": ("tape.wav", sound)}, headers=bearer).json()["id"] for _ in "12"
    )
    problem(http.get(f"/v1/jobs/{job}/audio"), 401, "unauthorized")
    stranger = {"Authorization": f"Bearer {foreign}"}
    problem(http.post(f"/v1/jobs/{job}/audio-link", headers=stranger), 404, "not_found")

    link = http.post(f"/v1/jobs/{job}/audio-link", headers=bearer).json()
    assert key.text not in link["url"]
    assert datetime.fromisoformat(link["expires_at"]) > datetime.now(UTC)
    assert http.get(link["url"]).content == sound
    assert http.get(link["url"], headers={"Range": "bytes=0-9"}).content == sound[:10]

    elsewhere = link["url"].replace(job, other)
    problem(http.get(elsewhere), 401, "unauthorized")
    asked = dict(parse_qsl(urlsplit(link["url"]).query))
    for change in ({"until": str(int(asked["until"]) + 60)}, {"signature": "0" * 64}, {"by": "operator"}):
        problem(http.get(f"/v1/jobs/{job}/audio?{urlencode(asked | change)}"), 401, "unauthorized")

    with live.services.database.begin() as tx:
        revoke_key(tx, key.id)
    problem(http.get(link["url"]), 401, "unauthorized")


def test_a_link_runs_out(http: httpx.Client, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    with live.services.database.begin() as tx:
        key = create_key(tx, "listener", "default", [Scope.READ, Scope.SUBMIT])
    live.services.key_cache.check_required()
    bearer = {"Authorization": f"Bearer {key.text}"}
    job = http.post("/v1/jobs", files={"file": ("tape.wav", wav())}, headers=bearer).json()["id"]
    monkeypatch.setattr("api.auth.signed_urls.HOLDS_SECONDS", -1)
    link = http.post(f"/v1/jobs/{job}/audio-link", headers=bearer).json()
    assert "expired" in str(problem(http.get(link["url"]), 401, "unauthorized")["detail"])


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 40))
def test_a_range_is_bytes_that_are_there(first: int, last: int, size: int) -> None:
    header = f"bytes={first}-{last}"
    if last < first:
        assert parse_range(header, size) is None
    elif first >= size:
        with pytest.raises(ValueError, match="no such bytes"):
            parse_range(header, size)
    else:
        assert parse_range(header, size) == (first, min(last + 1, size))


@pytest.mark.parametrize("header", [None, "", "bytes=-", "bytes=0-1,4-5", "lines=1-2", "bytes=a-b"])
def test_what_is_no_single_range_is_all_of_it(header: str | None) -> None:
    assert parse_range(header, 10) is None
