"""What a request may ask of the search, over HTTP: kept once, shown by digest, refused by its field."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from api.cli import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.settings import Settings
from spool.tables import phrase_lists


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"language_models": {"town": "/srv/town.arpa"}})


def lists(live: Live) -> int:
    with live.services.database.read() as tx:
        return tx.scalar(select(func.count()).select_from(phrase_lists)) or 0


def test_phrases_are_kept_once_and_shown_by_their_digest(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    first = http.post(
        "/v1/jobs",
        json=file_job(recordings, options={"boost": {"phrases": ["fog  horn", "Brücke", ""], "weight": 2}}),
    ).json()
    second = http.post(
        "/v1/jobs", json=file_job(recordings, options={"boost": {"phrases": ["Brücke", "fog horn"]}})
    ).json()
    boost = first["options"]["boost"]
    assert (boost["count"], boost["weight"], len(boost["sha256"])) == (2, 2.0, 64)
    assert second["options"]["boost"] == boost | {"weight": 1.0}
    assert lists(live) == 1
    shown = http.get(f"/v1/jobs/{second['id']}/phrases").json()
    assert shown == {"phrases": ["Brücke", "fog horn"]}
    plain = http.post("/v1/jobs", json=file_job(recordings)).json()
    assert plain["options"]["boost"] is None
    assert http.get(f"/v1/jobs/{plain['id']}/phrases").json() == {"phrases": []}
    assert "fog horn" not in http.get("/v1/jobs").text


@pytest.mark.parametrize(
    ("options", "where", "why"),
    [
        ({"nbest": 3}, "options.nbest", "greedy"),
        ({"decoder": "beam", "nbest": 8}, "options.nbest", "`beam`, which is 4"),
        ({"language_model": "village"}, "options.language_model", "available: town"),
        ({"lm_weight": 1.5}, "options.lm_weight", "needs `language_model`"),
        ({"boost": {"phrases": ["a", "b" * 201]}}, "options.boost.phrases.1", "200 characters"),
        ({"boost": {"phrases": ["a"], "weight": -1}}, "options.boost.weight", "greater than 0"),
        ({"boost": ["a"]}, "options.boost", "valid dictionary"),
        ({"context": "job"}, "options.context", "needs `language_model` or `boost`"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_field(
    http: httpx.Client, recordings: Path, options: dict[str, Any], where: str, why: str
) -> None:
    refused = problem(
        http.post("/v1/jobs", json=file_job(recordings, options=options)), 422, "invalid_request"
    )
    (fault,) = refused["errors"]
    assert fault["where"] == where
    assert why in fault["message"]


def test_a_batch_keeps_ten_thousand_phrases_once(live: Live, http: httpx.Client, recordings: Path) -> None:
    phrases = [f"Straße der {number:04} Lampen" for number in range(10_000)]
    source = (recordings / "reel 1.wav").as_uri()
    lines: list[dict[str, Any]] = [{"source": source}] * 300
    lines += [{"source": source, "options": {"decoder": "beam", "nbest": 2}}]
    lines += [{"source": source, "options": {"boost": {"phrases": ["lamp"]}}}]
    lines += [{"source": source, "options": {"boost": None}}]
    lines += [{"source": source, "options": {"boost": {"phrases": ["x" * 201]}}}]
    request = json.dumps({"options": {"boost": {"phrases": phrases}}}, ensure_ascii=False)
    form: dict[str, Any] = {
        "request": (None, request, "application/json"),
        "file": ("m.jsonl", "\n".join(map(json.dumps, lines)).encode(), "application/x-ndjson"),
    }
    batch = http.post("/v1/batches", files=form).json()
    assert (batch["lines"]["accepted"], batch["lines"]["bad"]) == (303, 1)
    assert batch["bad_lines"][0]["message"].startswith("options.boost.phrases.0: String should have at most")
    jobs = [job for job in http.get("/v1/jobs?limit=200").json()["items"] if job["batch"] == batch["id"]]
    counts = {job["options"]["boost"] and job["options"]["boost"]["count"] for job in jobs}
    assert counts == {10_000, 1, None}
    assert lists(live) == 2


def test_the_command_asks_for_all_of_it(
    live: Live,
    http: httpx.Client,
    recordings: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPOOL_URL", live.url)
    words = tmp_path / "words.txt"
    words.write_text("fog horn\n\nkeeper\n", encoding="utf-8")
    asked = ["--boost-file", str(words), "--boost", "Heligoland", "--boost-weight", "2.5"]
    asked += ["--decoder", "beam", "--beam", "8", "--nbest", "3", "--context", "job"]
    asked += ["--alternatives", "2", "--lattice", "7.5"]
    asked += [
        "--language-model",
        "town",
        "--lm-weight",
        "0.5",
        "--lm-blanks",
        "--pruning",
        "early",
        "--scores",
        "fixed",
    ]

    def spool(*arguments: str) -> int:
        try:
            main.main(list(arguments))
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    reel = str(recordings / "reel 1.wav")
    assert spool("submit", reel, *asked) == 0
    (job,) = http.get("/v1/jobs").json()["items"]
    assert job["options"] | {"boost": None} == job["options"] | {
        "decoder": "beam",
        "beam": 8,
        "nbest": 3,
        "alternatives": 2,
        "lattice": 7.5,
        "context": "job",
        "language_model": "town",
        "lm_weight": 0.5,
        "lm_blanks": True,
        "pruning": "early",
        "scores": "fixed",
        "boost": None,
    }
    assert job["options"]["boost"]["weight"] == 2.5
    told = http.get(f"/v1/jobs/{job['id']}/phrases").json()
    assert told == {"phrases": ["Heligoland", "fog horn", "keeper"]}

    manifest = tmp_path / "reels.jsonl"
    manifest.write_text(json.dumps({"source": (recordings / "reel 1.wav").as_uri()}))
    words.write_text("\n".join(f"phrase {number}" for number in range(3000)))
    assert spool("batch", "submit", str(manifest), "--boost-file", str(words)) == 0
    (batch,) = http.get("/v1/batches").json()["items"]
    jobs = [job for job in http.get("/v1/jobs").json()["items"] if job["batch"] == batch["id"]]
    assert [job["options"]["boost"]["count"] for job in jobs] == [3000]

    capsys.readouterr()
    assert spool("submit", reel, "--boost-weight", "2") == 2
    assert spool("submit", reel, "--boost-file", str(tmp_path / "none.txt")) == 2
    words.write_text("\n")
    assert spool("submit", reel, "--boost-file", str(words)) == 2
    assert spool("submit", reel, "--nbest", "2") == 2
    shown = capsys.readouterr().err.replace("\n", " ")
    for sentence in (
        "--boost-weight needs --boost, --boost-file or --glossary",
        "none.txt cannot be read: No such file",
        "contains no phrases",
        "--nbest needs --decoder beam, rescore, attention or wfst",
    ):
        assert sentence in shown


def test_a_language_that_the_model_does_not_know_is_refused_at_submission(
    live: Live, http: httpx.Client, recordings: Path, tmp_path: Path
) -> None:
    answer = problem(
        http.post("/v1/jobs", json=file_job(recordings, options={"language": "fr"})), 422, "invalid_request"
    )
    assert answer["detail"] == "language: demo-tdt does not know fr; it knows: en."
    batch = {"source": recordings.as_uri() + "/", "options": {"language": ["en", "xx"]}}
    refused = problem(http.post("/v1/batches", json=batch), 422, "invalid_request")
    assert "demo-tdt does not know xx" in str(refused["detail"])
    reel = tmp_path / "reel.wav"
    reel.write_bytes((recordings / "reel 1.wav").read_bytes())
    ran = invoke(main.main, ["submit", str(reel), "--language", "xx", "--url", live.url])
    assert ran.exit_code != 0
    assert "language: demo-tdt does not know xx; it knows: en" in ran.stderr
    assert http.get("/v1/jobs").json()["items"] == []
