"""An archive's story: requests to the real API whose answers are the examples of the OpenAPI description.

A worker is played by the store. What changes from run to run (ids, times, addresses) is replaced.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from starlette.routing import compile_path

from api.routing import DOCUMENTED
from ops.testbed.running_api import Live, transcript_of
from ops.testbed.waiting import until
from spool.domain import JobSpeaker, JobState, Lattice, LatticeArc, LatticeEnd
from spool.formats import render
from spool.store import JobFilter, list_jobs, write_prints
from spool.store.queue import endings
from tests.api.routes.test_language_models import ARPA
from tests.api.routes.test_voices import voice

SOUND = b"RIFF" + bytes(4) + b"WAVE" + bytes(400)
LATTICE = Lattice(
    start=0.0,
    end=1.9,
    channel=0,
    prune=5.0,
    score=-0.845,
    frame_seconds=0.08,
    times=(0.0, 0.48, 0.64, 0.64, 1.2),
    arcs=tuple(
        LatticeArc.model_validate(
            {"from": source, "to": target, "word": word, "start": start, "end": end}
            | {"acoustic": acoustic, "lm": 0.0, "confidence": share}
        )
        for source, target, word, start, end, acoustic, share in (
            (0, 1, "keep", 0.16, 0.48, -0.105, 0.9),
            (1, 2, "the", 0.56, 0.64, -0.221, 0.802),
            (1, 3, "a", 0.56, 0.64, -2.303, 0.1),
            (2, 4, "light", 0.72, 1.2, -0.416, 0.651),
            (3, 4, "light", 0.72, 1.2, -0.416, 0.081),
        )
    ),
    ends=(LatticeEnd(state=4, acoustic=-0.103, lm=0.0),),
)
_PATHS = [(route, compile_path(path)[0]) for path, route in DOCUMENTED]
_ID = re.compile(r"\b([a-z]{2,4})_[0-9A-HJKMNP-TV-Z]{26}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_BEGAN = datetime(2026, 11, 20, 14, 3, 11, tzinfo=UTC)


@dataclass
class Story:
    """Sends requests and keeps the first answer of each kind, by operation."""

    live: Live
    http: httpx.Client
    examples: dict[str, Any] = field(default_factory=dict)

    def send(self, method: str, path: str, label: str = "", **request: Any) -> httpx.Response:
        """Send a request, and keep it and its answer; `label` where an answer has several examples."""
        answer = self.http.request(method, path, **request)
        assert answer.status_code < 400 or path.endswith("z"), (method, path, answer.status_code, answer.text)
        name = _operation(method, path)
        kept = self.examples.setdefault(name, {"request": {}, "answers": {}})
        asked = _asked(request)
        if asked is not None:
            kind = answer.request.headers["content-type"].partition(";")[0]
            kept["request"].setdefault(kind, asked)
        shown: Any = None
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if kind in {"application/json", "application/ld+json"}:
            shown = answer.json()
        elif kind and not kind.startswith(("audio/", "application/zip", "application/vnd.")):
            shown = answer.text
        if kind and shown is not None:
            by_kind = kept["answers"].setdefault(str(answer.status_code), {})
            by_kind.setdefault(kind, {}).setdefault(label, shown)
        return answer

    def post(self, path: str, **request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.send("POST", path, **request).json()
        return answer

    def post_twice(self, path: str, **request: Any) -> dict[str, Any]:
        """Post with an idempotency key, and again as after a lost answer."""
        headers = {"Idempotency-Key": f"{path}-{len(self.examples)}".replace("/", "-")}
        self.post(path, headers=headers, **request)
        return self.post(path, headers=headers, **request)

    def get(self, path: str, label: str = "", **params: Any) -> httpx.Response:
        return self.send("GET", path, label, params=params)


def _operation(method: str, path: str) -> str:
    for route, pattern in _PATHS:
        if route.startswith(f"{method} ") and pattern.match(path):
            return route
    raise LookupError(f"{method} {path}")


def _asked(request: dict[str, Any]) -> Any:
    if "json" in request:
        return request["json"]
    if "files" in request:
        parts = {name: part[1] for name, part in request["files"].items()} | request.get("data", {})
        read = {name: json.loads(part) if name == "request" else part for name, part in parts.items()}
        return {name: "(bytes)" if isinstance(part, bytes) else part for name, part in read.items()}
    return request.get("content")


def tell(story: Story) -> None:
    """The whole story."""
    for chapter in (_fleet, _jobs, _transcripts, _speakers, _review, _batches, _batch_forms, _openai):
        chapter(story)
    for chapter in (
        _glossaries,
        _language_models,
        _outputs,
        _sources,
        _uploads,
        _webhooks,
        _reports,
        _closures,
        _receipts,
    ):
        chapter(story)


def _fleet(story: Story) -> None:
    story.get("/healthz")
    until(lambda: story.http.get("/readyz").status_code == 200, "the stores' answers in two seconds")
    story.get("/readyz")
    story.live.work()
    story.live.services.fleet.read()
    story.get("/v1/workers")
    story.get("/v1/models")
    story.get("/v1/models/demo-tdt")
    story.send("PUT", "/v1/models/default", json={"name": "demo-tdt"})


REEL = {
    "source": "s3://archive/1974/reel-0042.flac",
    "name": "Reel 42",
    "project": "oral-history",
    "options": {"model": "demo-tdt", "decoder": "beam", "beam": 8, "lattice": 5.0},
    "tags": {"box": "7"},
}


def _jobs(story: Story) -> None:
    request = {
        "name": "Interview with the lighthouse keeper",
        "project": "oral-history",
        "options": {
            "model": "demo-tdt",
            "decoder": "beam",
            "beam": 8,
            "nbest": 3,
            "boost": {"phrases": ["Heligoland", "fog horn"], "weight": 1.5},
        },
    }
    job = story.post_twice("/v1/jobs", json=REEL)["id"]
    form = {"request": (None, json.dumps(request)), "file": ("interview.wav", SOUND)}
    interview = story.post("/v1/jobs", files=form)["id"]
    work = story.live.work()
    claim = work.claim(job)
    work.progress(claim, 1202.4, 3605.2)
    story.get("/v1/jobs", project="oral-history", limit=1)
    story.get(f"/v1/jobs/{job}")
    work.finish(job, claim=claim, lattice=(LATTICE,))
    story.get(f"/v1/jobs/{interview}/phrases")
    story.send("DELETE", f"/v1/jobs/{interview}")
    story.post_twice(f"/v1/jobs/{interview}/retry")
    work.finish(interview)
    rerun = {"options": {"decoder": "greedy", "lattice": None}, "tags": {"why": "greedy"}}
    again = story.post_twice(f"/v1/jobs/{job}/rerun", json=rerun)["id"]
    work.finish(again, ("keep", "the", "lamp", "burning"))
    story.get(f"/v1/jobs/{job}/versions")
    story.get(f"/v1/jobs/{job}/diff", **{"with": again})
    story.get(f"/v1/jobs/{again}/events", after=0)
    story.post(f"/v1/jobs/{interview}/audio-link")
    story.send("DELETE", f"/v1/jobs/{interview}/content", params={"copies": True})


def _finish(story: Story, job_id: str, words: tuple[str, ...], prints: tuple[bytes, ...] = ()) -> None:
    """End the job as a worker does that found a speaker for each voice print."""
    claim, record = story.live.work().claim(job_id), transcript_of(job_id, words)
    key = f"jobs/{job_id}/attempt-1/transcript.json"
    stored = story.live.services.objects.put_bytes(key, render(record, "json").encode())
    speakers = [
        JobSpeaker(label=f"speaker_{at}", name=None, talk_seconds=9.0, words=len(words))
        for at in range(len(prints))
    ]
    with story.live.services.database.begin() as tx:
        outcome = endings.Outcome(2.0, key, stored.sha256 or "", 1.0, len(words), speakers=speakers)
        endings.finish_job(tx, claim, outcome)
        write_prints(tx, job_id, "e", {f"speaker_{at}": each for at, each in enumerate(prints)})


def _transcripts(story: Story) -> None:
    job = story.get("/v1/jobs", limit=10).json()["items"][-1]["id"]
    path = f"/v1/jobs/{job}/transcript"
    for form in ("json", "lattice"):
        story.get(path, form, format=form)
    for form in ("txt", "kaldi"):
        story.get(path, form, format=form)
    for form in ("srt", "vtt", "tsv", "ttml", "eaf", "tei", "pbcore", "iiif"):
        story.get(path, format=form)
    edit = {"first_word": 2, "last_word": 2, "text": "Ada Lund,", "seen": 0, "author": "Bo"}
    story.post(f"/v1/jobs/{job}/edits", json=edit)
    story.post(f"/v1/jobs/{job}/edits/1/undo", json={"author": "Bo"})
    story.get(f"/v1/jobs/{job}/edits")
    story.get("/v1/search", q="light", limit=1)


def _speakers(story: Story) -> None:
    jobs = []
    for prints in ((voice(1, 0), voice(0, 1)), (voice(0.1, 1),)):
        asked = REEL | {"options": {"diarization": {"voice_prints": True}}}
        jobs.append(story.post("/v1/jobs", json=asked)["id"])
        _finish(story, jobs[-1], ("keep", "the", "light"), prints)
    names = {"names": {"speaker_1": "Ada Lund"}, "remember": True}
    story.send("PATCH", f"/v1/jobs/{jobs[0]}/speakers", json=names)
    story.get(f"/v1/jobs/{jobs[1]}/speakers")
    voices = story.get("/v1/voices").json()["items"]
    story.send("DELETE", f"/v1/voices/{voices[0]['id']}")
    story.post_twice(f"/v1/jobs/{jobs[0]}/diarize", json={"speakers": {"min": 2, "max": 4}})


def _closures(story: Story) -> None:
    job = story.post("/v1/jobs", json=REEL)["id"]
    story.live.work().finish(job, ("then", "Ada", "Lund", "called", "0171", "555", "01"))
    path = f"/v1/jobs/{job}"
    story.get(f"{path}/closure-suggestions")
    story.post(f"{path}/closure-suggestions", json={"kind": "phone", "text": "0171 555 01"})
    asked = {"kind": "range", "start": 0.5, "end": 1.5, "until": "2099-01-01T00:00:00Z", "reason": "Her wish"}
    closure = story.post(f"{path}/closures", json=asked)["id"]
    story.get(f"{path}/closures")
    story.http.get(f"{path}/transcript", params={"closed": True}).raise_for_status()
    story.get(f"{path}/openings")
    story.send("DELETE", f"{path}/closures/{closure}")


def _receipts(story: Story) -> None:
    job = story.post("/v1/jobs", json=REEL)["id"]
    story.live.work().finish(job, content_sha256=hashlib.sha256(SOUND).hexdigest())
    story.get(f"/v1/jobs/{job}/receipt")
    story.get("/v1/receipt-keys")
    story.get(f"/v1/jobs/{job}/clip", start=0, end=1)
    for form in ("txt", "srt", "vtt", "ttml", "json"):
        story.get(f"/v1/jobs/{job}/clip/transcript", start=0, end=1, format=form)


def _review(story: Story) -> None:
    passage = story.get("/v1/review", limit=1, versions="all").json()["items"][0]
    story.get("/v1/review/recordings", limit=1)
    story.get("/v1/review/size", project="oral-history")
    asked = {"project": "oral-history", "margin": 0.02, "passages": 2, "seed": 7, "author": "Bo"}
    sample = story.post("/v1/review/samples", json=asked)["id"]
    path = f"/v1/jobs/{passage['job']}/passages/{passage['passage']}/check"
    story.post(path, json={"checked": True, "author": "Bo"})
    story.get("/v1/review/samples")
    story.get(f"/v1/review/samples/{sample}")


MANIFEST = (
    '{"source": "s3://archive/1974/reel-0042.flac", "custom_id": "reel-42", "tags": {"box": "7"}}\n'
    '{"source": "https://example.org/reel-0043.mp3", "custom_id": "reel-43", "tags": {"model": "9"}}\n'
)
TABLE = "source,custom_id,tags.box\ns3://archive/1974/reel-0042.flac,reel-42,7\n"


def _batches(story: Story) -> None:
    fields = {"name": "Reels of 1974", "project": "oral-history", "options": {"decoder": "greedy"}}
    asked = fields | {"source": "s3://archive/1974/", "tags": {"collection": "lighthouses"}, "reuse": False}
    batch = story.post_twice("/v1/batches", json=asked)["id"]
    work = story.live.work()
    jobs = [each["id"] for each in story.get("/v1/jobs", batch=batch).json()["items"]]
    work.finish(jobs[0])
    work.fail(jobs[1], "audio_unreadable", "The file is not audio that Spool can read.")
    story.get("/v1/batches", limit=1)
    story.get(f"/v1/batches/{batch}")
    story.get(f"/v1/batches/{batch}/results")
    story.get(f"/v1/batches/{batch}/transcripts")
    rerun = story.post(f"/v1/jobs/{jobs[0]}/rerun", json={"options": {"decoder": "beam"}})["id"]
    work.finish(rerun, ("keep", "the", "lamp"))
    story.get(f"/v1/batches/{batch}/diff")
    story.post(f"/v1/batches/{batch}/retry-failed")
    story.send("DELETE", f"/v1/batches/{batch}")
    story.get(f"/v1/batches/{batch}/events", after=0)


def _batch_forms(story: Story) -> None:
    words = ("x-ndjson", "jsonl", "jsonlines", "json-lines")
    for kind, text in (*((f"application/{word}", MANIFEST) for word in words), ("text/csv", TABLE)):
        story.send("POST", "/v1/batches", content=text, headers={"Content-Type": kind})
    request = json.dumps({"name": "Reels of 1974", "project": "oral-history"})
    files = {"request": (None, request), "file": ("reels.jsonl", MANIFEST)}
    story.post("/v1/batches", files=files)


def _work_off_uploads(story: Story, ended: threading.Event) -> None:
    work = story.live.work()
    while not ended.wait(0.02):
        with story.live.services.database.read() as tx:
            waiting = list_jobs(tx, JobFilter(state=JobState.QUEUED), None, 100).items
        for job in waiting:
            if job.source.kind == "upload":
                work.finish(job.id)


@contextmanager
def _working(story: Story) -> Iterator[None]:
    """A worker transcribes what is uploaded meanwhile."""
    ended = threading.Event()
    thread = threading.Thread(target=_work_off_uploads, args=(story, ended))
    thread.start()
    yield
    ended.set()
    thread.join()


def _openai(story: Story) -> None:
    files = {"file": ("tape.wav", SOUND)}
    with _working(story):
        for task in ("transcriptions", "translations"):
            for form in ("json", "text", "srt", "vtt"):
                asked = {"model": "whisper-1", "response_format": form}
                story.send("POST", f"/v1/audio/{task}", data=asked, files=files)
            story.send(
                "POST",
                f"/v1/audio/{task}",
                data=asked | {"response_format": "json", "stream": "true"},
                files=files,
            )


def _glossaries(story: Story) -> None:
    glossary = {"name": "lighthouses", "phrases": ["Heligoland", "fog horn"], "weight": 1.5}
    story.post("/v1/glossaries", json=glossary | {"project": "oral-history"})
    story.get("/v1/glossaries")
    story.get("/v1/glossaries/lighthouses", project="oral-history")
    job = story.post("/v1/jobs", json=REEL)["id"]
    story.live.work().finish(job, ("the", "fog", "horn", "of", "helly", "land"))
    edit = {"first_word": 4, "last_word": 5, "text": "Heligoland"}
    story.post(f"/v1/jobs/{job}/edits", json=edit)
    _spread(story, job)
    story.get("/v1/glossary-suggestions", project="oral-history")
    story.send("DELETE", "/v1/glossaries/lighthouses", params={"project": "oral-history"})


def _spread(story: Story, job: str) -> None:
    other = story.post("/v1/jobs", json=REEL | {"name": "Reel 43"})["id"]
    story.live.work().finish(other, ("off", "helly", "land,", "in", "fog"))
    edits = f"/v1/jobs/{job}/edits"
    found = story.get(f"{edits}/1/places").json()
    fields = ("job", "first_word", "last_word", "written", "text", "seen")
    places = [{name: place[name] for name in fields} for place in found["items"]]
    story.post(f"{edits}/1/spread", json={"places": places, "author": "Bo"})
    story.post(f"{edits}/1/spread/undo", json={"author": "Bo"})


def _language_models(story: Story) -> None:
    request = json.dumps({"name": "parish-registers", "model": "demo-tdt"})
    story.post("/v1/language-models", files={"request": (None, request), "file": ("a.arpa", ARPA)})
    story.get("/v1/language-models")
    story.get("/v1/language-models/parish-registers")
    story.send("DELETE", "/v1/language-models/parish-registers")


CONNECTION = {
    "name": "theirs",
    "project": "oral-history",
    "endpoint": "https://s3.example.org",
    "region": "us-east-1",
    "prefix": "s3://theirs/transcripts/",
    "access": "write",
    "key_id": "AKIAEXAMPLE",
    "secret": "…",
}
OUTPUT = {
    "prefix": "s3://theirs/transcripts/",
    "formats": ["srt", "txt"],
    "layout": "mirror",
    "connection": "theirs",
}


def _outputs(story: Story) -> None:
    story.post("/v1/connections", json=CONNECTION)
    story.get("/v1/connections")
    job = story.post("/v1/jobs", json=REEL | {"output": OUTPUT})["id"]
    story.live.work().finish(job)
    story.post(f"/v1/jobs/{job}/exports")
    story.send("DELETE", "/v1/connections/theirs", params={"project": "oral-history"})


def _sources(story: Story) -> None:
    asked = {
        "source": "s3://archive/1974/",
        "name": "Incoming",
        "project": "oral-history",
        "every_seconds": 300.0,
        "options": {"model": "demo-tdt"},
    }
    source = story.post("/v1/sources", json=asked)["id"]
    path = f"/v1/sources/{source}"
    until(lambda: story.http.get(path).json()["listed_at"], "the source is listed")
    story.get("/v1/sources")
    story.get(path)
    story.get(f"{path}/items", limit=2)
    record = {"bucket": {"name": "archive"}, "object": {"key": "1974/reel-0042.flac"}}
    story.post(
        "/v1/sources/notifications",
        json={"Records": [{"eventName": "s3:ObjectCreated:Put", "s3": record}]},
    )
    story.send("PATCH", path, json={"every_seconds": 60.0, "options": {"decoder": "greedy"}})
    for verb in ("pause", "resume", "check"):
        story.post(f"{path}/{verb}")
    story.send("DELETE", path)


def _uploads(story: Story) -> None:
    sha256 = hashlib.sha256(SOUND).hexdigest()
    asked = {"name": "reel-0042.wav", "bytes": len(SOUND), "content_type": "audio/wav", "sha256": sha256}
    upload = story.post("/v1/uploads", json=asked)["id"]
    story.post("/v1/uploads", json=asked)
    path = f"/v1/uploads/{upload}"
    story.get(path)
    (part,) = story.get(f"{path}/parts").json()["items"]
    assert httpx.put(part["url"], content=SOUND).is_success
    story.post(f"{path}/complete")
    story.send("DELETE", path)


def _webhooks(story: Story) -> None:
    asked = {
        "url": "https://archive.example.org/spool",
        "project": "oral-history",
        "description": "Catalogue",
    }
    webhook = story.post("/v1/webhooks", json=asked)["id"]
    path = f"/v1/webhooks/{webhook}"
    story.get("/v1/webhooks")
    story.get(path)
    story.post(f"{path}/rotate")
    story.post(f"{path}/enable")
    delivery = story.post(f"{path}/test")["id"]
    story.get(f"{path}/deliveries")
    story.post(f"{path}/deliveries/{delivery}/replay")
    story.send("DELETE", path)


def _reports(story: Story) -> None:
    for form in ("json", "csv", "svg"):
        story.get("/v1/costs", format=form)
    story.get("/v1/overview", batches="50")
    story.get("/metrics")


def steady(examples: dict[str, Any], replaced: dict[str, str]) -> dict[str, Any]:
    """The examples without what differs from run to run: `replaced` in texts, ids, times and long texts."""
    text = json.dumps(examples, ensure_ascii=False)
    for old, new in replaced.items():
        text = text.replace(old, new)
    ids = list(dict.fromkeys(match[0] for match in _ID.finditer(text)))
    for number, old in enumerate(ids):
        text = text.replace(old, f"{old.partition('_')[0]}_01JD5T9Q4X8K2M6N0P3R7S{number:04d}")
    moments = sorted({match[0] for match in _TIME.finditer(text)}, key=datetime.fromisoformat)
    for number, old in enumerate(moments):
        text = text.replace(old, f"{_BEGAN + timedelta(seconds=number):%Y-%m-%dT%H:%M:%SZ}")
    known: dict[str, Any] = json.loads(text)
    known["GET /metrics"]["answers"]["200"]["text/plain"][""] = _gauge(known)
    return dict(sorted(known.items()))


def _gauge(known: dict[str, Any]) -> str:
    text: str = known["GET /metrics"]["answers"]["200"]["text/plain"][""]
    return "".join(f"{line}\n" for line in text.splitlines() if "spool_jobs_queued" in line)
