"""Language models: built by the command, their versions, which jobs may name them, and how they go."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.audit import audit
from spool.background import delete_once
from spool.client import Spool
from spool.objects import FolderStore
from spool.store import FOLDER, batch_jobs

pytestmark = pytest.mark.integration

DEMO = str(Path(__file__).parents[3] / "models" / "demo")
ARPA = b"\\data\\\nngram 1=2\n\n\\1-grams:\n-99\t<s>\n-1\t</s>\n\n\\end\\\n"


def _put(http: httpx.Client, content: bytes = ARPA, **body: object) -> httpx.Response:
    form: dict[str, Any] = {
        "request": (None, json.dumps({"name": "parish", **body})),
        "file": ("a.arpa", content),
    }
    return http.post("/v1/language-models", files=form)


def _job(http: httpx.Client, recordings: Path, name: str, rescores: bool = False) -> httpx.Response:
    named: dict[str, object] = {"rescore": {"model": name}} if rescores else {"language_model": name}
    options = {"model": "demo-tdt", "decoder": "beam", **named}
    return http.post("/v1/jobs", json=file_job(recordings, options=options, reuse=False))


def _files(live: Live) -> list[str]:
    return [item.key for item in live.services.objects.list(FOLDER)]


def test_the_command_builds_lists_and_deletes(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))

    def spool(*arguments: str, code: int = 0) -> str:
        ran = invoke(main, ("lm", *arguments))
        assert ran.exit_code == code, ran
        return " ".join(ran.output.split())

    text = tmp_path / "minutes.txt"
    text.write_text("the keeper of the light\nthe маяк keeper\n", encoding="utf-8")
    build = ("build", str(text), "--model", DEMO, "--name", "parish")
    built = spool(*build, "--order", "3")
    assert "1 words that the model's tokens cannot spell" in built
    assert "parish@1:" in built
    assert "up to order 3" in built
    file = tmp_path / "a.arpa"
    file.write_bytes(ARPA)
    assert spool("put", "parish", str(file)) == "parish@2: 2 n-grams up to order 1"
    assert "parish@2" in spool("list")
    text.write_text("маяк\n", encoding="utf-8")
    assert "tokens for none of the 1 words" in spool(*build, code=2)
    assert spool("delete", "parish") == "parish deleted"
    assert spool("list") == "no language models"
    assert _files(live) == []


def test_the_command_builds_one_of_the_newest_transcripts_as_people_corrected_them(
    live: Live,
    http: httpx.Client,
    recordings: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))
    built: list[list[str]] = []

    def fake_worker(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        built.append(Path(command[-1]).read_text(encoding="utf-8").splitlines())
        Path(command[command.index("--output") + 1]).write_bytes(ARPA)
        return subprocess.CompletedProcess(command, 0, json.dumps({"unspelled": 0}), "")

    monkeypatch.setattr("api.cli.archive.language_models.subprocess.run", fake_worker)

    def build(*arguments: str, code: int = 0) -> str:
        ran = invoke(main, ("lm", "build", "--model", DEMO, "--name", "own", *arguments))
        assert ran.exit_code == code, ran
        return " ".join(ran.output.split())

    def done(*words: str, of: str = "", **request: object) -> str:
        path, body = (f"/v1/jobs/{of}/rerun", {}) if of else ("/v1/jobs", file_job(recordings) | request)
        job_id = str(http.post(path, json=body).json()["id"])
        live.work().finish(job_id, words)
        return job_id

    assert "--from-transcripts" in build(code=2)
    assert "no transcripts with words" in build("--from-transcripts", code=2)
    first = done("keep", "the", "lamp", tags={"reel": "1"})
    done("keep", "the", "light", of=first)
    other = done("burning", "on")
    assert "no corrected transcripts with words in project default" in build(
        "--from-transcripts", "--corrected", code=2
    )
    with Spool(live.url) as client:
        client.edit(other, 0, 0, "turning")
    assert "5 words of 2 transcripts of default" in build("--from-transcripts")
    assert built.pop() == ["turning on", "keep the light"]
    assert "2 words of 1 transcript of default" in build("--from-transcripts", "--corrected")
    assert built.pop() == ["turning on"]
    done("elsewhere", project="alpha")
    assert "choose with --project" in build("--from-transcripts", code=2)
    assert "1 words of 1 transcript of alpha" in build("--from-transcripts", "--project", "alpha")
    assert built == [["elsewhere"]]


def test_jobs_are_given_a_version_which_stays_until_they_have_ended(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    first = _put(http, model="demo-tdt").json()
    assert (first["version"], first["ngram_order"], first["ngrams"]) == (1, 1, 2)
    assert _put(http, ARPA + b"\n").json()["version"] == 2

    latest, older = _job(http, recordings, "parish").json(), _job(http, recordings, "parish@1").json()
    assert latest["options"]["language_model"] == "parish@2"
    assert older["options"]["language_model"] == "parish@1"
    for name in ("parish@3", "nowhere", "no where"):
        assert "no such language model" in json.dumps(
            problem(_job(http, recordings, name), 422, "invalid_request")
        )
    source = file_job(recordings)["source"]
    lines = [{"source": source, "options": {"decoder": "beam", "language_model": n}} for n in ("parish", "x")]
    batch = http.post(
        "/v1/batches",
        content="\n".join(map(json.dumps, lines)),
        headers={"Content-Type": "application/x-ndjson"},
    ).json()
    with live.services.database.read() as tx:
        kept = batch_jobs(tx, batch["id"], None, 9)
    assert [job.options.language_model for job in kept] == ["parish@2"]
    assert "no such language model" in json.dumps(batch)

    reads = _job(http, recordings, "parish@2", rescores=True).json()
    assert reads["options"]["rescore"]["model"] == "parish@2"
    refused = problem(_job(http, recordings, "parish@3", rescores=True), 422, "invalid_request")
    assert "there is no language model parish@3" in json.dumps(refused)

    for job_id in (latest["id"], older["id"], kept[0].id, reads["id"]):
        problem(http.delete("/v1/language-models/parish"), 409, "conflict")
        http.delete(f"/v1/jobs/{job_id}")
    assert len(_files(live)) == 2
    assert http.delete("/v1/language-models/parish").status_code == 204
    assert _files(live) == []
    problem(http.get("/v1/language-models/parish"), 404, "not_found")


def test_a_file_goes_with_its_last_version_and_the_audit_misses_one_that_is_lost(
    http: httpx.Client, live: Live
) -> None:
    # Given one file that two language models have, and one that a dead request left
    services, objects = live.services, live.services.objects
    assert isinstance(objects, FolderStore)
    _put(http)
    _put(http, name="other")
    [key] = _files(live)
    assert http.delete("/v1/language-models/other").status_code == 204
    assert _files(live) == [key]
    left = f"{FOLDER}{'0' * 64}.arpa"
    objects.put_bytes(left, ARPA)
    for each in (key, left):
        os.utime(objects.root / each, (0, 0))

    # When the deleter looks, then what no version has is gone, and nothing else
    delete_once(services.database, objects, services.settings, "dlr_test")
    assert _files(live) == [key]

    # And a file that is damaged or lost is a breach
    def breaches() -> list[str]:
        found = audit(services.database, objects).breaches
        return [breach.message for breach in found if breach.rule == "language_model"]

    assert breaches() == []
    objects.put_bytes(key, ARPA[1:])
    assert "is not what was written" in breaches()[0]
    objects.delete(key)
    assert "is not in the object store" in breaches()[0]
    assert _put(http).json()["version"] == 1, "the same file again repairs it"
    assert breaches() == []


def test_what_is_no_language_model_is_refused_and_leaves_nothing(http: httpx.Client, live: Live) -> None:
    for content, words in (
        (b"", "not an ARPA file"),
        (b"RIFF\x00\xff", "not an ARPA file"),
        (b"\\data\\\nngram 2=3\n\n\\end\\\n", "not an ARPA file"),
        (ARPA[:-8], "cut off"),
    ):
        assert words in json.dumps(problem(_put(http, content), 422, "invalid_request"))
    problem(_put(http, name="a b"), 422, "invalid_request")
    problem(_put(http, order=3), 422, "invalid_request")
    assert http.get("/v1/language-models").json() == {"items": []}
    assert _files(live) == []
