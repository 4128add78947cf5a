"""Versions of a recording over HTTP, from Python and from the command line."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.audit import audit
from spool.client import Spool
from spool.domain import Scope
from spool.tables import jobs
from tests.api.auth.keys import bearer, new_key

pytestmark = pytest.mark.integration

LAWS = {"version", "source", "deleted"}


def uploaded(http: httpx.Client, **request: object) -> str:
    files: dict[str, Any] = {
        "request": (None, json.dumps(request)),
        "file": ("reel.wav", b"RIFF" + bytes(40)),
    }
    return str(http.post("/v1/jobs", files=files).json()["id"])


def test_an_upload_is_run_again_where_it_lies_and_the_words_compared(http: httpx.Client, live: Live) -> None:
    first = uploaded(http, name="Reel 42", tags={"box": "7"}, options={"boost": {"phrases": ["Pedersen"]}})
    work = live.work()
    work.finish(first, ("Keep", "the", "light,", "Petersen"))
    before = http.get(f"/v1/jobs/{first}/transcript").content
    with Spool(live.url) as spool:
        other = spool.rerun(first, {"decoder": "beam", "beam": 4}, tags={"why": "beam"})
        assert (other.name, other.rerun_of, other.tags) == ("Reel 42", first, {"box": "7", "why": "beam"})
        assert other.source.uri == f"jobs/{first}/source"
        assert (other.options.beam, other.options.boost and other.options.boost.count) == (4, 1)
        work.finish(other.id, ("keep", "the", "bright", "light", "Pedersen"))
        assert http.get(f"/v1/jobs/{first}/transcript").content == before
        again = spool.rerun(other.id)
        assert again.rerun_of == first
        assert [each.job for each in spool.versions(other.id).items] == [first, other.id, again.id]
        diff = spool.diff(first, other.id)
        assert (diff.words, diff.edits, diff.wer, diff.total) == (4, 2, 0.5, 2)
        texts = [([w.text for w in each.base], [w.text for w in each.other]) for each in diff.items]
        assert texts == [([], ["bright"]), (["Petersen"], ["Pedersen"])]
    problem(http.get(f"/v1/jobs/{first}/diff", params={"with": again.id}), 409, "not_done")
    assert "demo-tdt" in invoke(main, ["versions", first, "--url", live.url]).stdout
    printed = invoke(main, ["diff", first, other.id, "--sort", "doubt", "--url", live.url]).stdout
    assert "Petersen  →  Pedersen" in printed
    assert "WER 50.00%" in printed
    ran = invoke(main, ["rerun", first, "--model", "demo-tdt", "--url", live.url, "--json"])
    assert json.loads(ran.stdout)[0]["rerun_of"] == first


def test_a_batch_is_compared_with_its_later_versions(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    line = file_job(recordings)["source"]
    manifest = "\n".join(json.dumps({"source": line, "name": f"Reel {at}"}) for at in range(3))
    headers = {"Content-Type": "application/x-ndjson"}
    batch = http.post("/v1/batches", content=manifest, headers=headers).json()["id"]
    with Spool(live.url) as spool:
        firsts = sorted(job.id for job in spool.jobs(batch=batch))
        work = live.work()
        for first in firsts:
            work.finish(first, ("keep", "the", "light", "Petersen"))
        assert spool.batch_diff_page(batch).items == []
        for first in firsts[:2]:
            for name in ("Petersen", "Pedersen"):
                work.finish(spool.rerun(first).id, ("keep", "the", "light", name))
        spool.rerun(firsts[0])  # is not done yet
        page = spool.batch_diff_page(batch, limit=1)
        assert [(each.base, each.edits, each.wer) for each in page.items] == [(firsts[0], 1, 0.25)]
        rest = spool.batch_diff_page(batch, limit=1, cursor=page.next_cursor)
        assert ([each.base for each in rest.items], rest.next_cursor) == ([firsts[1]], None)
        both = spool.batch_diff_page(batch, model="demo-tdt").sums
        assert (both.recordings, both.words, both.edits, both.wer) == (2, 8, 2, 0.25)
        first_cost = spool.job(firsts[0]).cost.billable
        assert first_cost > 0
        assert (both.cost_before, both.cost_after) == (2 * first_cost, 2 * first_cost)
        assert spool.batch_diff_page(batch, model="another").items == []
    printed = invoke(main, ["diff", "--batch", batch, "--url", live.url]).stdout
    assert "2 recordings, 2 of 8 words changed: WER 25.00%; cost" in printed
    key = bearer(new_key(live.services.database, "beta", (Scope.READ,)))
    problem(http.get(f"/v1/batches/{batch}/diff", headers=key), 404, "not_found")


def test_whatever_a_search_finds_is_run_again_once(http: httpx.Client, live: Live, recordings: Path) -> None:
    work = live.work()
    ids = []
    for project, words in (("sea", "the light"), ("land", "the light"), ("sea", "the lamp")):
        ids.append(http.post("/v1/jobs", json=file_job(recordings, project=project)).json()["id"])
        work.finish(ids[-1], tuple(words.split()))
    command = ["rerun", "--query", "light", "--project", "sea", "--url", live.url, "--json"]
    made: list[list[str]] = []
    for _ in range(2):
        made.append([job["id"] for job in json.loads(invoke(main, command).stdout)])
        assert http.get(f"/v1/jobs/{made[-1][0]}").json()["rerun_of"] == ids[0]
        if len(made) == 1:
            work.finish(made[0][0], ("light", "light"))  # is found as well now
    assert len(made[0]) == 1
    assert made[0] == made[1]
    ran = invoke(main, ["rerun", ids[0], "--tag", "box=7", "--url", live.url])
    assert ran.exit_code == 2
    assert "--query" in ran.stderr


def test_a_recording_that_is_still_needed_is_not_deleted_and_a_deleted_one_says_so(
    http: httpx.Client, live: Live
) -> None:
    first = uploaded(http)
    work = live.work()
    work.finish(first)
    other = http.post(f"/v1/jobs/{first}/rerun", json={}).json()["id"]
    refused = problem(http.delete(f"/v1/jobs/{first}/content"), 409, "conflict")
    assert other in str(refused["detail"])
    work.finish(other)
    problem(http.delete(f"/v1/jobs/{other}/content", params={"what": "source"}), 409, "conflict")
    assert not LAWS & set(audit(live.services.database, live.services.objects).counts)

    assert http.delete(f"/v1/jobs/{first}/content", params={"what": "source"}).status_code == 200
    assert http.get(f"/v1/jobs/{other}").json()["deleted"]["source"] is not None
    assert http.get(f"/v1/jobs/{other}/transcript", params={"format": "txt"}).status_code == 200
    assert live.services.objects.head(f"jobs/{first}/source") is None
    problem(http.post(f"/v1/jobs/{other}/rerun", json={}), 410, "deleted")
    assert http.get(f"/v1/jobs/{first}/versions").json()["stored"] is False
    assert not LAWS & set(audit(live.services.database, live.services.objects).counts)


def test_deleting_a_later_version_keeps_the_recording(http: httpx.Client, live: Live) -> None:
    first = uploaded(http)
    work = live.work()
    work.finish(first)
    other = http.post(f"/v1/jobs/{first}/rerun", json={}).json()["id"]
    work.finish(other)
    http.delete(f"/v1/jobs/{other}/content")
    assert http.get(f"/v1/jobs/{first}").json()["deleted"] is None
    assert live.services.objects.head(f"jobs/{first}/source") is not None
    deleted = {
        each["job"]: each["deleted"] for each in http.get(f"/v1/jobs/{first}/versions").json()["items"]
    }
    assert deleted == {first: False, other: True}


def test_versions_are_of_one_project_and_one_recording(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    work = live.work()
    alpha = http.post("/v1/jobs", json=file_job(recordings, project="alpha")).json()["id"]
    work.finish(alpha)
    beta = http.post("/v1/jobs", json=file_job(recordings, project="beta")).json()["id"]
    work.finish(beta)
    problem(http.get(f"/v1/jobs/{alpha}/diff", params={"with": beta}), 409, "conflict")
    key = bearer(new_key(live.services.database, "beta", (Scope.READ, Scope.SUBMIT)))
    problem(http.post(f"/v1/jobs/{alpha}/rerun", json={}, headers=key), 404, "not_found")
    problem(http.get(f"/v1/jobs/{beta}/diff", params={"with": alpha}, headers=key), 404, "not_found")
    reader = bearer(new_key(live.services.database, "alpha", (Scope.READ,)))
    problem(http.post(f"/v1/jobs/{alpha}/rerun", json={}, headers=reader), 403, "forbidden")
    operator = bearer(new_key(live.services.database, None, (Scope.ADMIN,)))
    bad = {"options": {"beam": 99}}
    problem(http.post(f"/v1/jobs/{alpha}/rerun", json=bad, headers=operator), 422, "invalid_request")
    with live.services.database.begin() as tx:
        tx.execute(update(jobs).where(jobs.c.id == beta).values(rerun_of=alpha))
    assert audit(live.services.database, None).counts["version"] == 1
