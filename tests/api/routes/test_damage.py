"""A byte changes in the object store: every route that reads the object says so, and none gives it out."""

from typing import Any

import httpx
import pytest

from ops.testbed.running_api import Live, problem
from spool.objects import FolderStore

BLOCK = 1 << 16
SOUND = b"RIFF" + bytes(range(256)) * 900
FORMS = ("json", "txt", "srt", "vtt", "paragraphs", "tsv", "ctm", "ttml", "eaf", "textgrid", "ohms", "docx")


def flip(live: Live, key: str, at: int) -> None:
    assert isinstance(live.services.objects, FolderStore)
    path = live.services.objects.root / key
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a recording of several blocks fits into what this server takes."""
    monkeypatch.setattr("spool.objects.integrity.HASH_BLOCK", BLOCK)


@pytest.fixture
def job(live: Live, http: httpx.Client) -> str:
    job_id = str(http.post("/v1/jobs", files={"file": ("tape.wav", SOUND)}).json()["id"])
    live.work().finish(job_id)
    return job_id


@pytest.mark.parametrize("at", [0, 40, -1])
def test_a_damaged_transcript_is_an_error_in_every_form(
    live: Live, http: httpx.Client, job: str, at: int
) -> None:
    assert all(http.get(f"/v1/jobs/{job}/transcript?format={form}").is_success for form in FORMS)
    (key,) = [item.key for item in live.services.objects.list(f"jobs/{job}/") if "transcript" in item.key]
    flip(live, key, at)
    for form in FORMS:
        answer = http.get(f"/v1/jobs/{job}/transcript?format={form}")
        assert "not what was written" in str(problem(answer, 503, "object_damaged")["detail"])


def test_a_damaged_recording_is_in_no_answer(live: Live, http: httpx.Client, job: str) -> None:
    path, at = f"/v1/jobs/{job}/audio", BLOCK + 17
    assert http.get(path).content == SOUND
    flip(live, f"jobs/{job}/source", at)
    first = http.get(path, headers={"Range": "bytes=0-65535"})
    assert (first.status_code, first.content) == (206, SOUND[:BLOCK])
    problem(http.get(path, headers={"Range": f"bytes={at + 5}-"}), 503, "object_damaged")
    received: list[bytes] = []
    with http.stream("GET", path) as answer, pytest.raises(httpx.RemoteProtocolError):
        received.extend(answer.iter_raw())
    assert b"".join(received) == SOUND[:BLOCK]


def test_the_results_of_a_batch_name_a_damaged_transcript(live: Live, http: httpx.Client) -> None:
    manifest = b'{"source": "https://example.org/a.mp3"}\n{"source": "https://example.org/b.mp3"}\n'
    answer = http.post("/v1/batches", content=manifest, headers={"Content-Type": "application/x-ndjson"})
    batch = answer.json()["id"]
    jobs = [job["id"] for job in http.get(f"/v1/jobs?batch={batch}").json()["items"]]
    worker = live.work()
    for job in jobs:
        worker.finish(job)
    (key,) = [item.key for item in live.services.objects.list(f"jobs/{jobs[0]}/")]
    flip(live, key, 30)
    lines = {line["job"]: line for line in map(_json, http.get(f"/v1/batches/{batch}/results").iter_lines())}
    assert lines[jobs[0]]["error"]["code"] == "object_damaged"
    assert lines[jobs[0]]["text"] is None
    assert lines[jobs[1]]["text"] == "keep the light"


def _json(line: str) -> dict[str, Any]:
    value: dict[str, Any] = httpx.Response(200, text=line).json()
    return value
