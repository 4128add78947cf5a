"""What is closed to readers, attacked: by every route, format, zip, event, webhook and search, without the
right and with it."""

import io
import json
import struct
import wave
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlencode
from zipfile import ZipFile

import httpx
import numpy as np
import pytest
import soundfile
from sqlalchemy import func, select, update
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from api.routing import SCOPES
from ops.testbed.bad_audio import write_av
from ops.testbed.running_api import Live, problem, start, transcript_of
from ops.testbed.waiting import until
from spool.background.sweeper import upkeep
from spool.domain import Content, DiarizationFacts, Scope, Speaker, Transcript, Turn
from spool.domain.archive.passages import passages_of
from spool.domain.transcript import Alternative, ChunkNbest, Lattice, LatticeArc, LatticeEnd, NbestText
from spool.formats import FORMATS, render
from spool.schemas.clips import ClipFormat
from spool.settings import Settings
from spool.sounds.letters import spell_sounds
from spool.sounds.lexicon import Lexicon
from spool.store import mark_deleted
from spool.store.archive.exports import exports_of
from spool.store.queue import endings
from spool.store.transcripts.review import FinishedJob, doubts_in
from spool.store.transcripts.sounds import ChannelSounds, write_sounds
from spool.store.transcripts.voices import write_prints
from spool.tables import closures as table
from spool.tables import not_private
from tests.api.auth.keys import bearer, new_key
from tests.api.delivery.receiver import Receiver
from tests.spool.sounds.sounds import hear
from worker.jobs.receipt import state

RATE = 16_000
SECRET, OTHER, SPEAKER, MAIDEN = "Xylophonist", "Quagmire", "Wilhelmina", "Throckmorton"
WORDS = ("we", "lit", "the", "lamp", SECRET, OTHER, "and", "went", "home", "again", "then", "slept")
SECRETS = (SECRET, OTHER, SPEAKER, MAIDEN)
SOUNDS, _ = hear([(2.05, SECRET)], 6.0, lexicon=Lexicon({SECRET.lower(): spell_sounds(SECRET)}))
SPELLED = "Z IY L OW F OW N IY S T"
TONE = 21_845  # the sample that fills the closed range; it has the bytes of no silence


def recording() -> bytes:
    """Six seconds: quiet noise, and a tone from 2 to 3 s."""
    quiet = struct.pack("<h", 257)
    sound = quiet * (2 * RATE) + struct.pack("<h", TONE) * RATE + quiet * (3 * RATE)
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, RATE, 0, "NONE", ""))
        writer.writeframes(sound)
    return file.getvalue()


def record_of(job_id: str) -> Transcript:
    """`WORDS`, two of them by a speaker of their own, and everything else that a record may hold of them."""
    record = transcript_of(job_id, WORDS)
    words = tuple(
        word.model_copy(
            update={
                "speaker": "speaker_1" if at in (4, 5) else "speaker_0",
                "alternatives": (Alternative(text=MAIDEN, confidence=0.2),) if at == 4 else (),
                "evidence": 0.0,
            }
        )
        for at, word in enumerate(record.words)
    )
    closed = {"start": 2.0, "end": 3.0, "channel": 0}
    arc = LatticeArc(source=0, target=1, word=SECRET, start=2.0, end=2.4, acoustic=-1, lm=0, confidence=0.9)
    return record.model_copy(
        update={
            "words": words,
            "segments": (record.segments[0].model_copy(update={"speaker": "speaker_0"}),),
            "speakers": (
                Speaker(label="speaker_0", talk_seconds=5.0, words=10),
                Speaker(label="speaker_1", talk_seconds=0.9, words=2),
            ),
            "turns": (
                Turn(start=0, end=2.0, speaker="speaker_0"),
                Turn(start=2.0, end=2.9, speaker="speaker_1"),
                Turn(start=3.0, end=6.0, speaker="speaker_0"),
            ),
            "options": {"decoder": "beam", "lattice": 5.0, "prompt": SECRET},
            "diarization": DiarizationFacts(name="default", sha256="0"),
            "nbest": (ChunkNbest(**closed, hypotheses=(NbestText(text=f"{SECRET} {MAIDEN}", score=-1),)),),
            "lattice": (
                Lattice(
                    **closed,
                    prune=5,
                    score=-1,
                    frame_seconds=0.1,
                    times=(2.0, 2.4),
                    arcs=(arc,),
                    ends=(LatticeEnd(state=1, acoustic=0, lm=0),),
                ),
            ),
            "warnings": (f"The model has no tokens for 1 of 12 words, among them: {SECRET}.",),
        }
    )


@dataclass
class Archive:
    """A server with a recording in a batch, its rerun, its copy, and keys of a reader, and of one more."""

    live: Live
    http: httpx.Client
    keys: dict[str, str]
    output: Path
    receiver: Receiver
    parameters: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, caller: str = "reader", **parts: Any) -> httpx.Response:
        headers = parts.pop("headers", {}) | bearer(self.keys[caller])
        return self.http.request(method, self.live.url + path, headers=headers, **parts)

    def get(self, path: str, caller: str = "reader", **params: Any) -> httpx.Response:
        return self.ask("GET", path, caller, params=params)

    def finish(self, job_id: str, content: str | None = "c" * 64) -> None:
        """End the job as a worker does that heard two speakers."""
        live = self.live
        claim, record = live.work().claim(job_id), record_of(job_id)
        key = f"jobs/{job_id}/attempt-1/transcript.json"
        stored = live.services.objects.put_bytes(key, render(record, "json").encode())
        speakers = [
            {"label": each.label, "name": None, "talk_seconds": each.talk_seconds, "words": each.words}
            for each in record.speakers
        ]
        (doubts,) = doubts_in(live.services.database, [FinishedJob(claim.job, content, record)])
        outcome = endings.Outcome(
            6.0, key, stored.sha256 or "", 1.0, len(WORDS), speakers=speakers, content_sha256=content,  # type: ignore[arg-type]
            warnings=list(record.warnings),
        )  # fmt: skip
        with live.services.database.begin() as tx:
            statement = state(claim, record, outcome, [], None, None)
            endings.finish_job(tx, claim, outcome, passages_of(record), doubts, statement)
            write_prints(tx, job_id, "e", {"speaker_1": bytes(8)})
            write_sounds(tx, job_id, "alpha", [ChannelSounds.of(SOUNDS)])

    def close(self, job_id: str, caller: str = "archivist", **what: Any) -> dict[str, Any]:
        answer = self.ask("POST", f"/v1/jobs/{job_id}/closures", caller, json=what)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def openings(self) -> list[dict[str, Any]]:
        paths = (f"/v1/jobs/{self.parameters[name]}/openings" for name in ("job_id", "rerun", "copy"))
        return [one for path in paths for one in self.get(path, "archivist").json()["items"]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.close()


@pytest.fixture
def archive(
    settings: Settings,
    recordings: Path,
    tmp_path: Path,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Archive]:
    monkeypatch.setattr("spool.background.exporter.LOOK_S", 0.02)
    monkeypatch.setattr("api.delivery.webhook_dispatcher._LOOK_S", 0.02)
    monkeypatch.setattr("api.routes.openai.WAIT_SECONDS", 0.0)
    output = tmp_path / "output"
    output.mkdir()
    changed = {
        "output_prefixes": (f"{output.resolve().as_uri()}/",),
        "webhook_private_hosts": ("localhost",),
        "live_open_seconds": 1e-3,
    }
    running = start(settings.model_copy(update=changed))
    database = running.live.services.database
    keys = {
        "reader": new_key(database, "alpha"),
        "archivist": new_key(database, "alpha", (Scope.READ, Scope.SUBMIT, Scope.CLOSED)),
        "admin": new_key(database, None, (Scope.ADMIN,)),
    }
    tape = recordings / "tape.wav"
    tape.write_bytes(recording())
    try:
        with httpx.Client(timeout=60, verify=False) as http:
            made = Archive(running.live, http, keys, output, receiver)
            _fill(made, tape)
            yield made
    finally:
        running.close()


def _fill(archive: Archive, tape: Path) -> None:
    """A batch of one recording, named speakers, a correction, another version and a copy."""
    hook = archive.ask("POST", "/v1/webhooks", json={"url": archive.receiver.url("/hook")})
    assert hook.status_code == 201, hook.text
    request = {
        "output": {"prefix": f"{archive.output.resolve().as_uri()}/", "formats": list(FORMATS)},
        "options": {"diarization": {}, "nbest": 2, "decoder": "beam", "lattice": 5.0},
    }
    sent = archive.ask(
        "POST",
        "/v1/batches",
        content=json.dumps({"source": tape.as_uri()}),
        headers={"Content-Type": "application/x-ndjson"},
        params={"request": json.dumps(request)},
    )
    assert sent.status_code == 202, sent.text
    batch = sent.json()
    jobs = archive.get("/v1/jobs", batch=batch["id"]).json()["items"]
    job_id = jobs[0]["id"]
    archive.finish(job_id)
    names = {"names": {"speaker_1": SPEAKER}, "remember": True}
    path = f"/v1/jobs/{job_id}"
    assert archive.ask("PATCH", f"{path}/speakers", json=names).status_code == 200
    edit = {"first_word": 5, "last_word": 5, "text": MAIDEN}
    edited = archive.ask("POST", f"{path}/edits", json=edit)
    assert edited.status_code == 201, edited.text
    rerun = archive.ask("POST", f"{path}/rerun", json={"options": {"nbest": 3}}).json()["id"]
    archive.finish(rerun)
    copy = archive.ask("POST", "/v1/jobs", json={"source": tape.as_uri(), "deduplicate": False}).json()["id"]
    archive.finish(copy)
    for each in (rerun, copy):
        assert (
            archive.ask("PATCH", f"/v1/jobs/{each}/speakers", json={"names": names["names"]}).status_code
            == 200
        )
    archive.parameters = {
        "job_id": job_id,
        "batch_id": batch["id"],
        "rerun": rerun,
        "copy": copy,
        "passage": "0",
    }
    archive.parameters |= {
        "webhook_id": hook.json()["id"],
        "revision": "1",
        "voice_id": "voi_0",
        "glossary": "g",
    }
    archive.parameters |= {"language_model": "m", "model": "demo-tdt", "name": "theirs", "upload_id": "upl_0"}
    archive.parameters |= {"source_id": "src_0", "delivery_id": "dlv_0"}
    sample = archive.ask("POST", "/v1/review/samples", json={})
    assert sample.status_code == 201, sample.text
    archive.parameters["sample_id"] = sample.json()["id"]


NOTHING = "nothing of a transcript or a recording"
LAST = "changes what the others read: asked last"
STATEMENTS: Mapping[str, dict[str, Any] | str] = {
    "POST /v1/jobs": NOTHING,
    "GET /v1/jobs": {"params": {"first_words": "true"}},
    "GET /v1/jobs/{job_id}": {},
    "DELETE /v1/jobs/{job_id}": {},
    "DELETE /v1/jobs/{job_id}/content": {},
    "POST /v1/jobs/{job_id}/retry": {},
    "GET /v1/jobs/{job_id}/transcript": {},
    "GET /v1/jobs/{job_id}/clip": {"params": {"start": "1.9", "end": "3.1"}},
    "GET /v1/jobs/{job_id}/clip/transcript": {"params": {"start": "1.9", "end": "3.1", "format": "srt"}},
    "GET /v1/jobs/{job_id}/clip/audio": {"params": {"start": "1.9", "end": "3.1"}},
    "GET /v1/jobs/{job_id}/receipt": {},
    "GET /v1/receipt-keys": {},
    "POST /v1/jobs/{job_id}/rerun": {"json": {"tags": {"n": "attack"}}},
    "GET /v1/jobs/{job_id}/versions": {},
    "GET /v1/jobs/{job_id}/diff": {"params": {"with": "{rerun}"}},
    "POST /v1/jobs/{job_id}/diarize": LAST,
    "GET /v1/jobs/{job_id}/speakers": {},
    "PATCH /v1/jobs/{job_id}/speakers": {"json": {"names": {"speaker_0": "Ada"}}},
    "GET /v1/jobs/{job_id}/phrases": {},
    "GET /v1/jobs/{job_id}/events": {"params": {"after": "0"}},
    "POST /v1/jobs/{job_id}/audio-link": {},
    "GET /v1/jobs/{job_id}/audio": {},
    "GET /v1/jobs/{job_id}/edits": {},
    "POST /v1/jobs/{job_id}/edits": {"json": {"first_word": 0, "last_word": 0, "text": "They", "seen": 9}},
    "POST /v1/jobs/{job_id}/edits/{revision}/undo": {"json": {}},
    "GET /v1/jobs/{job_id}/edits/{revision}/places": {},
    "POST /v1/jobs/{job_id}/edits/{revision}/spread": {"json": {"places": []}},
    "POST /v1/jobs/{job_id}/edits/{revision}/spread/undo": {"json": {}},
    "GET /v1/jobs/{job_id}/closures": {},
    "POST /v1/jobs/{job_id}/closures": {"json": {"kind": "range", "start": 5.5, "end": 6}},
    "DELETE /v1/jobs/{job_id}/closures/{closure_id}": {},
    "GET /v1/jobs/{job_id}/openings": {},
    "GET /v1/jobs/{job_id}/closure-suggestions": {},
    "POST /v1/jobs/{job_id}/closure-suggestions": {"json": {"kind": "name", "text": "Ada"}},
    "POST /v1/jobs/{job_id}/exports": {},
    "GET /v1/voices": {},
    "DELETE /v1/voices/{voice_id}": {},
    "POST /v1/jobs/{job_id}/passages/{passage}/check": {"json": {}},
    "GET /v1/review": {"params": {"versions": "all"}},
    "GET /v1/review/recordings": {},
    "GET /v1/review/size": {},
    "POST /v1/review/samples": {"json": {}},
    "GET /v1/review/samples": {},
    "GET /v1/review/samples/{sample_id}": {},
    "GET /v1/search": {"params": {"q": "lamp"}},
    "GET /v1/overview": {},
    "POST /v1/audio/transcriptions": {"files": {"file": b"RIFF"}},
    "POST /v1/audio/translations": {"files": {"file": b"RIFF"}},
    "POST /v1/uploads": NOTHING,
    "GET /v1/uploads/{upload_id}": NOTHING,
    "GET /v1/uploads/{upload_id}/parts": NOTHING,
    "POST /v1/uploads/{upload_id}/complete": NOTHING,
    "DELETE /v1/uploads/{upload_id}": NOTHING,
    "POST /v1/batches": NOTHING,
    "GET /v1/batches": {},
    "GET /v1/batches/{batch_id}": {},
    "DELETE /v1/batches/{batch_id}": {},
    "GET /v1/batches/{batch_id}/results": {"params": {"include": "words"}},
    "GET /v1/batches/{batch_id}/transcripts": {},
    "GET /v1/batches/{batch_id}/diff": {},
    "POST /v1/batches/{batch_id}/retry-failed": {},
    "GET /v1/batches/{batch_id}/events": {"params": {"after": "0"}},
    "POST /v1/webhooks": NOTHING,
    "GET /v1/webhooks": {},
    "GET /v1/webhooks/{webhook_id}": {},
    "DELETE /v1/webhooks/{webhook_id}": LAST,
    "POST /v1/webhooks/{webhook_id}/rotate": NOTHING,
    "POST /v1/webhooks/{webhook_id}/enable": {},
    "POST /v1/webhooks/{webhook_id}/test": {},
    "GET /v1/webhooks/{webhook_id}/deliveries": {},
    "POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay": {},
    "POST /v1/connections": NOTHING,
    "GET /v1/connections": {},
    "DELETE /v1/connections/{name}": NOTHING,
    "POST /v1/glossaries": {"json": {"name": "names", "phrases": ["fog"], "auto_add_after": 1}},
    "GET /v1/glossaries": {},
    "GET /v1/glossary-suggestions": {},
    "GET /v1/glossaries/{glossary}": {},
    "DELETE /v1/glossaries/{glossary}": {},
    "POST /v1/language-models": NOTHING,
    "GET /v1/language-models": {},
    "GET /v1/language-models/{language_model}": {},
    "DELETE /v1/language-models/{language_model}": {},
    "POST /v1/sources": NOTHING,
    "GET /v1/sources": {},
    "POST /v1/sources/notifications": NOTHING,
    "GET /v1/sources/{source_id}": NOTHING,
    "PATCH /v1/sources/{source_id}": NOTHING,
    "DELETE /v1/sources/{source_id}": NOTHING,
    "GET /v1/sources/{source_id}/items": NOTHING,
    "POST /v1/sources/{source_id}/pause": NOTHING,
    "POST /v1/sources/{source_id}/resume": NOTHING,
    "POST /v1/sources/{source_id}/check": NOTHING,
    "GET /v1/costs": {},
    "GET /v1/workers": {},
    "GET /v1/models": {},
    "GET /v1/models/{model}": {},
    "PUT /v1/models/default": NOTHING,
    "GET /metrics": {},
    "GET /v1/listen": {"socket": {"session": "{job_id}", "from": "0"}},
    "GET /v1/listen/wenet": {"socket": {"session": "{job_id}", "from": "0"}},
    "GET /v1/realtime": {"socket": {"session": "{job_id}"}},
}
"""How each route is asked, or why it is not; `socket`: the query of a WebSocket."""

RANGE: dict[str, Any] = {"kind": "range", "start": 2.0, "end": 3.0, "reason": f"{SECRET} asked for it"}
VOICE: dict[str, Any] = {"kind": "speaker", "speaker": "speaker_1"}
WHOLE: dict[str, Any] = {"kind": "whole", "until": "2099-01-01T00:00:00Z"}


def test_every_route_says_whether_it_could_open_something() -> None:
    assert set(STATEMENTS) == set(SCOPES), "say in STATEMENTS how a reader could get at something closed here"


@pytest.mark.parametrize("what", [RANGE, VOICE, WHOLE], ids=lambda what: what["kind"])
def test_nothing_closed_leaves_by_any_way_and_every_opening_is_logged(
    archive: Archive, what: dict[str, Any]
) -> None:
    # Given a recording that everybody reads
    job = f"/v1/jobs/{archive.parameters['job_id']}"
    assert SECRET in archive.get(f"{job}/transcript").text
    until(lambda: _written(archive) and SECRET in _exported(archive), "it is exported")

    # When it is closed
    archive.parameters["closure_id"] = archive.close(archive.parameters["job_id"], **what)["id"]
    rerun = archive.ask("POST", f"{job}/rerun", json={"tags": {"n": "late"}}).json()["id"]
    archive.finish(rerun)
    archive.parameters["late"] = rerun

    # Then no route gives a reader anything of it, in any format, and for no version of the recording
    for name, statement in STATEMENTS.items():
        if not isinstance(statement, str):
            told = f"{name} {statement}"
            for which in ("job_id", "rerun", "copy", "late") if "{job_id}" in told else ("job_id",):
                _attack(archive, name, statement, which)
    for which, renderings in (("job_id", RENDERINGS), ("rerun", ONE), ("copy", ONE), ("late", ONE)):
        path = f"/v1/jobs/{archive.parameters[which]}"
        _read_every_way(archive, path, renderings, whole=what is WHOLE)
    for form in FORMATS:
        path = f"/v1/batches/{archive.parameters['batch_id']}/transcripts"
        _refuse_secrets(archive.get(path, format=form), f"zip of {form}")
    _search_for(archive)
    _refuse_secrets(archive.get(f"{job}/diff", **{"with": archive.parameters["late"]}), "diff")

    # Nor do the files that were written before, and the webhooks
    until(lambda: _written(archive) and SECRET not in _exported(archive), "written anew")
    files = [path for path in archive.output.rglob("*") if path.is_file()]
    assert len(files) == len(FORMATS)
    for file in files:
        _refuse_bytes(file.read_bytes(), file.name)
    sent = [each for each in archive.receiver.at("/hook", 6) if rerun.encode() in each.body]
    assert sent
    for message in sent:
        _refuse_bytes(message.body, "webhook")
    assert archive.openings() == []

    _open_with_the_right(archive, rerun)
    _lift(archive)


def _open_with_the_right(archive: Archive, rerun: str) -> None:
    """With the right, and asked for, all of it is there, and each opening in the log."""
    job = f"/v1/jobs/{archive.parameters['job_id']}"
    opened = archive.get(f"{job}/transcript", "archivist", closed="true")
    assert SECRET in opened.text
    assert SPEAKER in opened.text
    assert Transcript.model_validate_json(opened.text).closed
    assert SECRET not in archive.get(f"{job}/transcript", "archivist").text, "unless asked for"
    late = archive.get(f"/v1/jobs/{rerun}/transcript", "archivist", closed="true", format="srt")
    assert SECRET in late.text
    audio = archive.get(f"{job}/audio", "archivist", closed="true")
    assert struct.pack("<h", TONE) * 8 in audio.content
    hits = archive.get("/v1/search", "archivist", closed="true", q=SECRET).json()["items"]
    assert len(hits) == 4
    assert all(hit["closed"] for hit in hits)
    sounding = archive.get("/v1/search", "archivist", closed="true", spelling=SPELLED).json()["items"]
    assert len(sounding) == 4
    assert all(hit["closed"] and 2.0 <= hit["sound"]["start"] < 3.0 for hit in sounding)
    assert SECRET in archive.get("/v1/review", "archivist", closed="true", versions="all").text
    for path, asked in (("/v1/review?versions=all", {"closed": "true"}), ("/v1/review/recordings", {})):
        listed = archive.get(path, "archivist", **asked).json()["items"]
        assert {one["job"] for one in listed} & {archive.parameters["job_id"], rerun}, path
        # The numbers of open passages and words would tell how many are closed
        assert archive.get(path).json()["items"] == [], path
    log = {(one["job"], one["way"]) for one in archive.openings()}
    assert (archive.parameters["job_id"], "GET /v1/jobs/{job_id}/transcript") in log
    assert (archive.parameters["job_id"], "GET /v1/jobs/{job_id}/audio") in log
    assert {job_id for job_id, way in log if way == "GET /v1/search"} >= {archive.parameters["copy"]}
    assert archive.get(f"{job}/receipt", "archivist", closed="true").is_success
    link = archive.ask("POST", f"{job}/audio-link", "archivist", params={"closed": "true"}).json()["url"]
    assert struct.pack("<h", TONE) * 8 in archive.http.get(archive.live.url + link).content
    cut = archive.http.get(archive.live.url + link.replace("closed=true", "closed=false"))
    problem(cut, 401, "unauthorized")
    ways: list[tuple[str, dict[str, str]]] = [
        (f"{job}/{what}", {}) for what in ("transcript", "receipt", "audio")
    ]
    for path, more in (*ways, ("/v1/search", {"q": "x"})):
        problem(archive.get(path, closed="true", **more), 403, "forbidden")


def _lift(archive: Archive) -> None:
    """Once it is lifted, it is open to all again."""
    job = f"/v1/jobs/{archive.parameters['job_id']}"
    closed = archive.parameters["closure_id"]
    problem(archive.ask("DELETE", f"{job}/closures/{closed}"), 403, "forbidden")
    assert archive.ask("DELETE", f"{job}/closures/{closed}", "archivist").json()["lifted_at"]
    for each in archive.get(f"{job}/closures").json()["items"]:  # the attack closed the last half second
        archive.ask("DELETE", f"{job}/closures/{each['id']}", "archivist").raise_for_status()
    assert SECRET in archive.get(f"{job}/transcript").text
    until(lambda: _written(archive) and SECRET in _exported(archive), "written again")


def _attack(archive: Archive, name: str, statement: dict[str, Any], which: str) -> None:
    """Ask one route as a reader, or as an operator who does not ask for what is closed."""
    method, path = name.split(" ")
    known = archive.parameters | {"job_id": archive.parameters[which]}
    parts = (
        json.loads(json.dumps(statement).replace("{rerun}", known["rerun"]))
        if "files" not in statement
        else statement
    )
    caller = "admin" if SCOPES[name] is Scope.ADMIN else "reader"
    if "socket" in statement:
        query = {key: value.format_map(known) for key, value in statement["socket"].items()}
        return _refuse_bytes(_listen(archive, path, caller, query), name)
    if name.endswith("/events"):
        with archive.http.stream(
            method, archive.live.url + path.format_map(known), headers=bearer(archive.keys[caller]), **parts
        ) as stream:
            told = b"".join(stream.iter_raw())
        return _refuse_bytes(told, name)
    answer = archive.ask(method, path.format_map(known), caller, **parts)
    assert answer.status_code < 500 or answer.status_code in (503, 504), (name, answer.text)
    return _refuse_secrets(answer, f"{name} of the {which}")


def _listen(archive: Archive, path: str, caller: str, query: dict[str, str]) -> bytes:
    """All that a WebSocket says to somebody who asks for a recording's session, however it refuses."""
    address = f"{archive.live.url.replace('http', 'ws', 1)}{path}?{urlencode(query)}"
    told: list[str] = []
    try:
        with connect(address, proxy=None, additional_headers=bearer(archive.keys[caller])) as socket:
            socket.send(json.dumps({"type": "session.update", "session": {"type": "transcription"}}))
            while True:
                told.append(str(socket.recv(timeout=60)))
    except ConnectionClosed as end:
        told.append(str(end))
    except InvalidStatus as refused:
        told.append((refused.response.body or b"").decode())
    assert any(told), "it says why"
    return "\n".join(told).encode()


ONE: tuple[dict[str, str], ...] = ({},)
RENDERINGS = (*ONE, {"original": "true"}, {"recorded": "true"}, {"digits": "en"})


def _read_every_way(
    archive: Archive, job: str, renderings: tuple[dict[str, str], ...], *, whole: bool
) -> None:
    for form in (*FORMATS, "iiif"):
        for more in renderings:
            answer = archive.get(f"{job}/transcript", format=form, **more)
            _refuse_secrets(answer, f"{form} {more}")
    for form in get_args(ClipFormat):
        answer = archive.get(f"{job}/clip/transcript", start="1.9", end="3.1", format=form)
        _refuse_secrets(answer, f"clip as {form}")
    text = archive.get(f"{job}/transcript", format="txt").text
    assert "[closed]" in text
    assert whole or ("lamp" in text and "slept" not in SECRETS)
    _refuse_secrets(archive.get(f"{job}/transcript", "admin"), "an operator who did not ask")
    size = len(recording())
    link = archive.ask("POST", f"{job}/audio-link")
    _refuse_secrets(link, "link")
    for begin, end in ((0, size - 1), (60_000, 70_000), (64_001, 95_999), (80_000, 80_100)):
        headers = {"Range": f"bytes={begin}-{end}"}
        parts = [archive.ask("GET", f"{job}/audio", headers=headers)]
        if link.status_code == 200:
            parts.append(archive.http.get(archive.live.url + link.json()["url"], headers=headers))
        for part in parts:
            assert part.status_code == 206, part.text
            _refuse_secrets(part, f"bytes {begin} to {end}")
            if whole:
                assert not any(part.content[max(0, 44 - begin) :]), "silence alone"
            else:
                want = bytearray(recording())
                first, last = 44 + 2 * RATE * 2 - RATE // 2, 44 + 3 * RATE * 2
                got = part.content
                assert len(got) == end - begin + 1
                inside = slice(max(0, 44 + 4 * RATE - begin), max(0, last - begin))
                assert not any(got[inside]), "silence is zeros"
                if begin == 0:
                    assert got[:first] == bytes(want[:first]), "and the rest is as it was"


def _search_for(archive: Archive) -> None:
    """A search for closed words answers what a search for words does that nobody said."""
    for query in (SECRET, OTHER, MAIDEN, f"{SECRET}~", f"lamp {SECRET}", f'"lamp {SECRET}"', "Xylo*"):
        for more in (
            {},
            {"alternatives": "true"},
            {"limit": "1"},
            {"versions": "newest"},
            {"speaker": SPEAKER},
        ):
            answer = archive.get("/v1/search", q=query, **more)
            assert answer.json() == {"items": [], "next_cursor": None, "sounds": None}, (
                query,
                more,
                answer.text,
            )
    for asked in ({"sound": SECRET}, {"spelling": SPELLED}, {"sound": OTHER}, {"sound": MAIDEN}):
        answer = archive.get("/v1/search", **asked)
        assert answer.json()["items"] == [], (asked, answer.text)
    for query in ("home", "lamp", "the lamp"):
        said, unsaid = (archive.get("/v1/search", q=f"{query} -{word}") for word in (SECRET, "Nonsense"))
        assert said.json() == unsaid.json()
        _refuse_secrets(unsaid, query)
    assert archive.get("/v1/search", q="home", speaker=SPEAKER).json()["items"] == []


def _written(archive: Archive) -> bool:
    with archive.live.services.database.read() as tx:
        files = exports_of(tx, archive.parameters["job_id"])
    assert not [each.error for each in files if each.state == "failed"]
    return bool(files) and all(each.state == "written" for each in files)


def _exported(archive: Archive) -> str:
    return "".join(path.read_text() for path in archive.output.rglob("*.txt"))


def _refuse_secrets(answer: httpx.Response, where: str) -> None:
    _refuse_bytes(answer.content, where)


def _refuse_bytes(data: bytes, where: str) -> None:
    if data[:4] == b"PK\x03\x04":
        with ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                _refuse_bytes(archive.read(name), f"{where}: {name}")
    for secret in SECRETS:
        assert secret.lower().encode() not in data.lower(), f"{secret} in {where}"
    assert struct.pack("<h", TONE) * 4 not in data, f"the tone is in {where}"


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ({"kind": "range", "start": 3, "end": 2}, "start: 3 s is not before the end, 2 s."),
        ({"kind": "range", "start": 3}, "A range needs `start` and `end`, and nothing else may have them."),
        (RANGE | {"end": 600.0}, "end: 600 s is beyond the end of the recording at 6.0 s."),
        (RANGE | {"until": "2020-01-01"}, "until: 2020-01-01 00:00 UTC is in the past."),
        (
            RANGE | {"speaker": "speaker_1"},
            "A closed speaker needs `speaker`, and nothing else may have one.",
        ),
        (
            VOICE | {"speaker": "speaker_7"},
            "speaker: there is no speaker_7; the speakers are: speaker_0, speaker_1.",
        ),
    ],
)
def test_what_cannot_be_closed_is_said_in_one_sentence(
    archive: Archive, what: dict[str, Any], sentence: str
) -> None:
    answer = archive.ask("POST", f"/v1/jobs/{archive.parameters['job_id']}/closures", json=what)
    assert problem(answer, 422, "invalid_request")["detail"] == sentence
    assert archive.get(f"/v1/jobs/{archive.parameters['job_id']}/closures").json() == {"items": []}


def test_it_opens_on_its_date_and_the_files_follow(archive: Archive) -> None:
    job_id = archive.parameters["job_id"]
    archive.close(job_id, **RANGE, until=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    assert SECRET not in archive.get(f"/v1/jobs/{job_id}/transcript").text
    until(lambda: _written(archive) and SECRET not in _exported(archive), "closed")
    services = archive.live.services
    with services.database.begin() as tx:
        tx.execute(update(table).values(until=datetime.now(UTC) - timedelta(seconds=1)))
    assert SECRET in archive.get(f"/v1/jobs/{job_id}/transcript").text
    upkeep(services.database, services.settings)
    (closure,) = archive.get(f"/v1/jobs/{job_id}/closures").json()["items"]
    assert (closure["lifted_by"], closure["reason"]) == ("date", None)
    until(lambda: _written(archive) and SECRET in _exported(archive), "open")


def _finish_another(archive: Archive, path: Path, data: bytes) -> str:
    path.write_bytes(data)
    job_id = str(archive.ask("POST", "/v1/jobs", json={"source": path.as_uri()}).json()["id"])
    archive.finish(job_id, "d" * 64)
    return job_id


@pytest.mark.parametrize(
    ("container", "subtype"), [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III")]
)
def test_recordings_in_other_formats_are_played_as_wav_without_what_is_closed(
    archive: Archive, recordings: Path, container: str, subtype: str
) -> None:
    tone = np.sin(np.arange(6 * RATE) / 9) / 3
    file = io.BytesIO()
    soundfile.write(file, tone, RATE, format=container, subtype=subtype)
    job_id = _finish_another(archive, recordings / f"tape.{container.lower()}", file.getvalue())
    path = f"/v1/jobs/{job_id}/audio"
    assert archive.get(path).content == file.getvalue(), "as it is while nothing is closed"

    archive.close(job_id, **RANGE)
    answer = archive.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
    assert answer.headers["content-length"] == str(len(answer.content))
    samples, _ = soundfile.read(io.BytesIO(answer.content))
    assert len(samples) == 6 * RATE
    assert not samples[2 * RATE : 3 * RATE].any()
    for first in (RATE, 4 * RATE):
        # MP3 is silent for a tenth of a second around what is closed
        open_part = slice(first, first + RATE * 9 // 10)
        assert np.abs(samples[open_part] - tone[open_part]).mean() < 0.02
    link = archive.live.url + archive.ask("POST", f"{path}-link").json()["url"]
    for begin, end in ((0, 99), (60_000, 70_000), (64_001, 95_999), (150_001, 192_043)):
        headers = {"Range": f"bytes={begin}-{end}"}
        for part in (archive.ask("GET", path, headers=headers), archive.http.get(link, headers=headers)):
            assert (part.status_code, part.content) == (206, answer.content[begin : end + 1])
    assert archive.get(path, "archivist", closed="true").content == file.getvalue()


def test_what_a_workers_reader_alone_decodes_is_played_and_cut_without_what_is_closed(
    archive: Archive, recordings: Path, tmp_path: Path
) -> None:
    tone = (np.sin(np.arange(6 * RATE) / 9) / 3).astype(np.float32)
    data = write_av(tmp_path / "tone", "mp4", "aac", tone, RATE).read_bytes()
    job_id = _finish_another(archive, recordings / "tape.m4a", data)
    assert archive.get(f"/v1/jobs/{job_id}/audio").content == data, "as it is while nothing is closed"
    clip, times = f"/v1/jobs/{job_id}/clip/audio", {"start": "1.5", "end": "4"}
    before, _ = soundfile.read(io.BytesIO(archive.get(clip, **times).content))
    assert len(before) == 2.5 * RATE
    assert np.abs(before[RATE // 2 : 3 * RATE // 2]).max() > 0.2

    archive.close(job_id, **RANGE)
    samples, _ = soundfile.read(io.BytesIO(archive.get(clip, **times).content))
    assert len(samples) == 2.5 * RATE
    assert not samples[RATE // 2 : 3 * RATE // 2].any()
    assert np.array_equal(samples[: RATE // 2 - 1], before[: RATE // 2 - 1])
    answer = archive.get(f"/v1/jobs/{job_id}/audio")
    whole, _ = soundfile.read(io.BytesIO(answer.content))
    assert answer.headers["content-type"] == "audio/wav"
    assert not whole[2 * RATE : 3 * RATE].any()


def test_a_recording_that_cannot_be_silenced_is_not_played_at_all(archive: Archive, recordings: Path) -> None:
    data = b"\0\0\0\x18ftypM4A " + struct.pack("<h", TONE) * 1000
    job_id = _finish_another(archive, recordings / "tape.m4a", data)
    path = f"/v1/jobs/{job_id}/audio"
    assert archive.get(path).status_code == 200
    closure = archive.close(job_id, **RANGE)["id"]
    detail = problem(archive.get(path), 403, "forbidden")["detail"]
    assert detail.startswith("Part of the recording is closed. tape.m4a: ")
    problem(archive.ask("POST", f"{path}-link"), 403, "forbidden")

    # Closed whole, it is silence, whatever its format
    archive.ask("DELETE", f"/v1/jobs/{job_id}/closures/{closure}", "archivist").raise_for_status()
    archive.close(job_id, **WHOLE)
    silence = archive.get(path).content
    assert len(silence) == 44 + 2 * 6 * RATE
    assert not any(silence[44:])


def test_samples_and_their_size_count_nothing_of_closed_recordings_without_the_right(
    archive: Archive, recordings: Path
) -> None:
    open_job = _finish_another(archive, recordings / "open.wav", recording())
    drawn, size = archive.parameters["sample_id"], archive.get("/v1/review/size").json()
    archive.close(archive.parameters["job_id"], **RANGE)

    seen = archive.get("/v1/review/size").json()
    assert seen["words"] == len(WORDS), "those of the open recording"
    assert archive.get("/v1/review/size", "archivist").json() == size
    assert size["words"] > seen["words"]
    assert drawn not in archive.get("/v1/review/samples").text
    assert "error_rate" not in archive.get(f"/v1/review/samples/{drawn}").text
    problem(archive.get(f"/v1/review/samples/{drawn}"), 403, "forbidden")
    assert archive.get(f"/v1/review/samples/{drawn}", "archivist").json()["id"] == drawn

    own = archive.ask("POST", "/v1/review/samples", json={"passages": 1000}).json()
    assert (own["population"], own["size"]) == (seen["population"], seen["population"])
    listed = archive.get("/v1/review", sample=own["id"]).json()["items"]
    assert {each["job"] for each in listed} == {open_job}
    assert own["id"] in archive.get("/v1/review/samples").text
    whole = archive.ask("POST", "/v1/review/samples", "archivist", json={"passages": 1000}).json()
    assert whole["population"] == size["population"]


def test_what_somebody_decided_is_not_private_is_suggested_no_more(archive: Archive) -> None:
    job, rerun = (f"/v1/jobs/{archive.parameters[name]}" for name in ("job_id", "rerun"))

    def suggested(path: str, caller: str = "reader", **asked: str) -> list[str]:
        found = archive.get(f"{path}/closure-suggestions", caller, **asked).json()["items"]
        return [one["text"] for one in found]

    assert suggested(rerun) == [f"{SECRET} {OTHER}"]
    assert suggested(job) == [f"{SECRET} {MAIDEN}"], "as it was corrected"
    name = {"kind": "name", "text": f"{SECRET} {OTHER}".upper()}
    assert archive.ask("POST", f"{rerun}/closure-suggestions", json=name).json() == {"items": []}
    assert suggested(rerun) == []
    assert suggested(job) == [f"{SECRET} {MAIDEN}"], "these are other words"
    phone = {"kind": "phone", "text": name["text"]}
    problem(archive.ask("POST", f"{rerun}/closure-suggestions", json=phone), 404, "not_found")
    again = archive.ask("POST", f"{rerun}/closure-suggestions", json=name | {"private": True})
    assert [one["text"] for one in again.json()["items"]] == [f"{SECRET} {OTHER}"]

    # Nobody learns by it which words are closed, and the decision goes with the transcript
    archive.ask("POST", f"{rerun}/closure-suggestions", json=name).raise_for_status()
    archive.close(archive.parameters["job_id"], **RANGE)
    problem(archive.ask("POST", f"{rerun}/closure-suggestions", json=name), 404, "not_found")
    opened = archive.ask(
        "POST", f"{rerun}/closure-suggestions", "archivist", json=name, params={"closed": "true"}
    )
    assert opened.json() == {"items": []}
    with archive.live.services.database.begin() as tx:
        assert tx.scalar(select(func.count()).select_from(not_private)) == 1
        mark_deleted(tx, [archive.parameters["rerun"]], Content.TRANSCRIPT, "retention")
        assert tx.scalar(select(func.count()).select_from(not_private)) == 0


def test_a_speaker_stays_closed_when_more_words_are_found_to_be_theirs(archive: Archive) -> None:
    job_id = archive.parameters["job_id"]
    archive.close(job_id, **VOICE)
    assert "slept" in archive.get(f"/v1/jobs/{job_id}/transcript").text
    edit = {"first_word": 11, "last_word": 11, "speaker": "speaker_1", "seen": 1}
    problem(archive.ask("POST", f"/v1/jobs/{job_id}/edits", json=edit), 403, "forbidden")
    problem(archive.ask("POST", f"/v1/jobs/{job_id}/edits", "archivist", json=edit), 403, "forbidden")
    asked = {"closed": "true"}
    edited = archive.ask("POST", f"/v1/jobs/{job_id}/edits", "archivist", json=edit, params=asked)
    assert edited.status_code == 201, edited.text
    assert "slept" not in archive.get(f"/v1/jobs/{job_id}/transcript").text
    assert archive.get("/v1/search", q="slept", batch=archive.parameters["batch_id"]).json()["items"] == []
    audio = archive.get(f"/v1/jobs/{job_id}/audio").content
    assert not any(audio[44 + 2 * round(5.5 * RATE) : 44 + 2 * round(5.9 * RATE)])
