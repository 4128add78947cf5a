"""Receipts over HTTP and at the command line: signed once, kept, and checked without the server."""

import hashlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from ops.testbed.running_api import Live, file_job, problem, transcript_of
from spool.bundled import bundled_folder
from spool.domain import Scope
from spool.domain.archive.passages import passages_of
from spool.domain.receipts import Origin, Receipt
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.formats import render
from spool.settings import Settings
from spool.settings.signing_key import check_receipt
from spool.store import Outcome, finish_job
from tests.api.auth.keys import bearer, new_key
from worker.jobs.receipt import state

DOCS = Path(__file__).parents[3] / "docs" / "receipts.md"


def submitted(http: httpx.Client, recordings: Path) -> str:
    return str(http.post("/v1/jobs", json=file_job(recordings)).json()["id"])


@pytest.fixture
def job_id(live: Live, http: httpx.Client, recordings: Path) -> str:
    """A job that is done."""
    made = submitted(http, recordings)
    audio = hashlib.sha256((recordings / "reel 1.wav").read_bytes()).hexdigest()
    live.work().finish(made, content_sha256=audio)
    return made


def keys_of(http: httpx.Client) -> list[bytes]:
    return [each["pem"].encode() for each in http.get("/v1/receipt-keys").json()["items"]]


def test_a_receipt_is_of_the_recording_the_options_and_the_stored_transcript(
    live: Live, http: httpx.Client, job_id: str, recordings: Path
) -> None:
    path = f"/v1/jobs/{job_id}"
    answer = http.get(f"{path}/receipt")
    assert answer.headers["content-type"] == "application/json"
    receipt = check_receipt(answer.content, keys_of(http))
    record = http.get(f"{path}/transcript", params={"recorded": True}).content
    assert receipt.statement.transcript_sha256 == hashlib.sha256(record).hexdigest()
    assert (receipt.statement.job, len(receipt.statement.chunks)) == (job_id, 1)

    # Corrections and names make other transcripts, and change neither record nor receipt.
    edit = {"first_word": 0, "last_word": 0, "text": "kept"}
    assert http.post(f"{path}/edits", json=edit).status_code == 201
    assert "kept" in http.get(f"{path}/transcript").text
    assert http.get(f"{path}/transcript", params={"recorded": True}).content == record
    assert http.get(f"{path}/receipt").content == answer.content

    # Deleting the recording keeps the receipt; deleting the transcript does not.
    assert http.delete(f"{path}/content", params={"what": "transcript"}).is_success
    problem(http.get(f"{path}/receipt"), 410, "deleted")


def test_there_is_no_receipt_before_the_end(http: httpx.Client, recordings: Path) -> None:
    waiting = submitted(http, recordings)
    problem(http.get(f"/v1/jobs/{waiting}/receipt"), 409, "not_done")
    problem(http.get("/v1/jobs/job_none/receipt"), 404, "not_found")


def test_another_attempt_has_no_receipt(http: httpx.Client, job_id: str) -> None:
    assert http.get(f"/v1/jobs/{job_id}/receipt", params={"attempt": 1}).is_success
    refused = problem(http.get(f"/v1/jobs/{job_id}/receipt", params={"attempt": 2}), 404, "not_found")
    assert refused["detail"] == f"Job {job_id} has no receipt of attempt 2."


def test_a_receipt_stays_as_it_was_signed_when_the_key_changes(
    settings: Settings, recordings: Path, start_api: Callable[[Settings], Live]
) -> None:
    first = start_api(settings)
    with httpx.Client(base_url=first.url, timeout=60) as http:
        jobs = [submitted(http, recordings) for _ in range(2)]
        work = first.work()
        for each in jobs:
            work.finish(each)
        given = http.get(f"/v1/jobs/{jobs[0]}/receipt").content
        assert (settings.home / "receipt-key").stat().st_mode & 0o777 == 0o600
    second = start_api(settings.model_copy(update={"receipt_key": SecretStr("n" * 40)}))
    with httpx.Client(base_url=second.url, timeout=60) as http:
        assert http.get(f"/v1/jobs/{jobs[0]}/receipt").content == given
        later = http.get(f"/v1/jobs/{jobs[1]}/receipt").content
        known = http.get("/v1/receipt-keys").json()["items"]
        keys = [each["pem"].encode() for each in known]
    assert [each["signs"] for each in known] == [True, False]
    for file, own in ((given, keys[1]), (later, keys[0])):
        check_receipt(file, keys)
        check_receipt(file, [own])
    ids = [Receipt.model_validate_json(file).signature.key_id for file in (given, later)]
    assert ids == [known[1]["id"], known[0]["id"]]


def test_the_receipt_of_a_closed_recording_takes_the_right(
    live: Live, http: httpx.Client, job_id: str
) -> None:
    path, database = f"/v1/jobs/{job_id}", live.services.database
    before = http.get(f"{path}/receipt").content
    until = datetime.now(UTC).replace(year=datetime.now(UTC).year + 1).isoformat()
    closed = {"kind": "range", "start": 0.0, "end": 0.5, "until": until}
    assert http.post(f"{path}/closures", json=closed).status_code == 201
    for what in ("receipt", "transcript?recorded=true"):
        refused = problem(http.get(f"{path}/{what}"), 403, "forbidden")
        assert refused["detail"].startswith("Part of the recording is closed until")
    admin = bearer(new_key(database, None, (Scope.ADMIN,)))
    assert http.get(f"{path}/receipt", params={"closed": True}, headers=admin).content == before
    log = http.get(f"{path}/openings", headers=admin).json()["items"]
    assert [each["way"] for each in log] == ["GET /v1/jobs/{job_id}/receipt"]


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "api.cli.main", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_the_commands_and_the_documented_snippet_check_a_receipt(
    live: Live, http: httpx.Client, job_id: str, recordings: Path, tmp_path: Path
) -> None:
    file, record, keys, snippet = (tmp_path / name for name in ("r.json", "t.json", "keys.pem", "check.py"))
    for arguments in (("receipt", job_id, "--out", file), ("transcript", job_id, "--recorded", "-o", record)):
        assert command(*arguments, "--url", live.url).returncode == 0
    keys.write_text(command("receipt-keys", "--url", live.url).stdout)
    audio = recordings / "reel 1.wav"
    whole = ("--key", keys, "--audio", audio, "--transcript", record)
    checked = command("verify-receipt", file, *whole)
    assert checked.returncode == 0, checked.stderr
    said = "the signature, the recording and the transcript and its options are as signed with key "
    assert said in checked.stdout

    # With nothing but Python and cryptography
    snippet.write_text(DOCS.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0])
    words = [sys.executable, "-I", str(snippet), *map(str, (file, keys, audio, record))]
    own = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert own.returncode == 0, own.stderr
    assert own.stdout == f"{job_id}: genuine\n"

    for path, sentence in (
        (audio, "the recording: SHA-256 is"),
        (record, "the transcript: SHA-256 is"),
        (file, "spool: The "),
    ):
        data = path.read_bytes()
        path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        noticed = command("verify-receipt", file, *whole)
        assert noticed.returncode == 1
        assert sentence in noticed.stderr
        assert subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 1
        path.write_bytes(data)
    missing = command("verify-receipt", tmp_path / "none", "--key", keys)
    assert missing.returncode == 2
    assert "none: the file cannot be read: No such file" in missing.stderr


def end(live: Live, job_id: str, audio: Path, words: Sequence[str], origin: Origin | None) -> Origin:
    """End the job as a worker does that decoded these words, or took them from another job."""
    claim = live.work().claim(job_id)
    record = transcript_of(job_id, tuple(words)).model_copy(
        update={"options": claim.job.options.model_dump(mode="json")}
    )
    key = f"jobs/{job_id}/transcript.1.json"
    sha256 = live.services.objects.put_bytes(key, render(record, "json").encode()).sha256 or ""
    content = hashlib.sha256(audio.read_bytes()).hexdigest()
    outcome = Outcome(record.audio.duration, key, sha256, 1.0, len(words), content_sha256=content)
    last = round(record.audio.duration * 16_000)
    heard = [DecodedChunk(ChunkSpan(0, 0, 0, last, 0, last), Recognition(words=record.words))]
    with live.services.database.begin() as tx:
        statement = state(claim, record, outcome, [] if origin else heard, None, origin)
        finish_job(tx, claim, outcome, passages_of(record), (), statement)
    return Origin(job=job_id, transcript_sha256=sha256)


def test_a_reused_transcript_is_verified_by_the_receipt_of_the_job_that_decoded_it(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    first, second, forged = (submitted(http, recordings) for _ in range(3))
    audio, asked = recordings / "reel 1.wav", ("--url", live.url, "--model", bundled_folder("models/demo"))
    origin = end(live, first, audio, ("keep", "the", "light"), None)
    end(live, second, audio, ("keep", "the", "light"), origin)
    ran = command("verify", second, *asked)
    assert f"The words are those of job {first}: its receipt is checked" in ran.stdout, ran.stderr
    # Nothing was really decoded in this test: the receipt's model has no weights.
    assert "these weights are not those of the job" in ran.stderr
    assert ran.returncode == 2
    end(live, forged, audio, ("keep", "the", "lamp"), origin)
    refused = command("verify", forged, *asked)
    assert refused.returncode == 2
    assert f"The words are not those of job {first}, which the receipt names." in refused.stderr
    http.delete(f"/v1/jobs/{first}/content", params={"what": "transcript"}).raise_for_status()
    gone = command("verify", second, *asked)
    assert gone.returncode != 0
    assert "deleted" in gone.stderr
