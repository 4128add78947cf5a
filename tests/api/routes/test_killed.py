"""kill -9 of processes that list a source, write files and keep a language model: nothing is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from sqlalchemy import delete, update

from ops.testbed.running_api import Live, transcript_of
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import until
from spool.audit import Grace, audit
from spool.background import STRAY_SECONDS, Exporter, delete_once, find_strays
from spool.formats import render
from spool.objects import FolderStore
from spool.settings import Settings
from spool.store import (
    FOLDER,
    Database,
    JobFilter,
    create_source,
    exports_of,
    list_items,
    list_jobs,
    list_language_models,
    seconds_from_now,
)
from spool.tables import locks, sources
from spool.tables.sources import NewSource

pytestmark = pytest.mark.integration
OLD = 1_700_000_000


def kill_at(point: str, settings: Settings, code: str, **stored: str) -> None:
    """Run `code` with `settings` and the services of an API in a process that dies at `point`. `stored`: what
    else it has to know of the object store."""
    setup = f"""
from pathlib import Path
from api.services import open_services
from api.watching.watcher import SourceWatcher
from spool.settings import load_settings
settings = load_settings({{}}, home=Path({str(settings.home)!r}), database_url={settings.database_url!r},
    redis_url={settings.redis_url!r}, source_roots=(Path({str(settings.source_roots[0])!r}),),
    output_prefixes={settings.output_prefixes!r}, models={dict(settings.models)!r}, **{stored!r})
{code}
"""
    armed = os.environ | {"SPOOL_FAILPOINTS": f"{point}=kill"}
    done = subprocess.run([sys.executable, "-c", setup], env=armed, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, point


def test_a_watcher_and_an_exporter_that_are_killed(
    settings: Settings, recordings: Path, tmp_path: Path, start_api: Callable[[Settings], Live]
) -> None:
    (tmp_path / "theirs").mkdir()
    theirs = f"{(tmp_path / 'theirs').resolve().as_uri()}/"
    settings = settings.model_copy(update={"output_prefixes": (theirs,)})
    for name in ("a.wav", "b.wav", "reel 1.wav"):
        (recordings / name).write_bytes(b"RIFF")
        os.utime(recordings / name, (OLD, OLD))
    request = {"output": {"prefix": theirs, "formats": ["srt"]}}
    db = Database(settings.database_url)
    with db.begin() as tx:
        source = create_source(tx, NewSource("default", "in", f"{recordings.as_uri()}/", request, 300, 0)).id

    # Killed before the first listing and after what it found was committed; the lease runs out
    for point in ("watch.taken", "watch.noted"):
        kill_at(point, settings, "SourceWatcher(open_services(settings)).run_once()")
        with db.begin() as tx:
            assert len(list_jobs(tx, JobFilter()).items) == (3 if point == "watch.noted" else 0)
            tx.execute(update(sources).values(lease_until=seconds_from_now(-1)))
    live = start_api(settings)

    def listed_at() -> object:
        with db.read() as tx:
            return tx.scalar(sources.select().with_only_columns(sources.c.listed_at))

    until(lambda: listed_at() is not None)
    with db.read() as tx:
        jobs = list_jobs(tx, JobFilter()).items
        items = list_items(tx, source, "taken").items
    assert sorted(job.source.uri for job in jobs) == sorted(path.as_uri() for path in recordings.iterdir())
    assert {item.job_id for item in items} == {job.id for job in jobs}

    # Killed before a file is written, and before its row says so
    live.services.exporter.stop()
    job = next(each for each in jobs if each.name == "a.wav")
    live.work().finish(job.id)
    written = tmp_path / "theirs" / "a.wav.srt"
    words = render(transcript_of(job.id, ("keep", "the", "light")), "srt")
    for point in ("export.named", "export.written"):
        kill_at(point, settings, "open_services(settings).exporter.join()")
        assert written.exists() == (point == "export.written")
        with db.begin() as tx:
            assert [each.state for each in exports_of(tx, job.id)] == ["pending"]
            tx.execute(delete(locks).where(locks.c.name == "exports"))  # it runs out
    exporter = Exporter(db, live.services.objects, settings, live.services.secret_box)
    exporter.run_once()
    with db.read() as tx:
        (file,) = exports_of(tx, job.id)
    assert (file.state, file.uri) == ("written", written.as_uri())
    assert written.read_text() == words
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["a.wav.srt"], "no temporary file stays"
    assert not audit(db, None).counts["exported"]
    exporter.finish()
    db.close()


def test_an_api_that_is_killed_between_a_language_models_file_and_its_row(
    settings: Settings, start_api: Callable[[Settings], Live]
) -> None:
    asked = """
from fastapi.testclient import TestClient
from api.app import create_app
with TestClient(create_app(settings), base_url="http://localhost") as client:
    arpa = "\\\\data\\\\\\nngram 1=2\\n\\n\\\\1-grams:\\n-99\\t<s>\\n-1\\t</s>\\n\\n\\\\end\\\\\\n"
    form = {"request": (None, '{"name": "parish"}'), "file": ("a.arpa", arpa)}
    answer = client.post("/v1/language-models", files=form)
    assert answer.status_code == 201, answer.text
    client.delete("/v1/language-models/parish")
"""
    live = start_api(settings)
    services, objects = live.services, live.services.objects
    assert isinstance(objects, FolderStore)
    for point in ("language_model.stored", "language_model.removed"):
        kill_at(point, settings, asked)
        with services.database.read() as tx:
            assert list_language_models(tx) == []
        (left,) = [each.key for each in objects.list(FOLDER)]
        assert not audit(services.database, objects).counts["language_model"]
        os.utime(objects.root / left, (0, 0))
        delete_once(services.database, objects, services.settings, "dlr_test")
        assert list(objects.list(FOLDER)) == [], "a later round of the deleter takes what nobody has"


def test_an_api_that_is_killed_while_an_upload_goes_past_it(
    settings: Settings, start_api: Callable[[Settings], Live], s3_server: S3Server
) -> None:
    s3_server.client().create_bucket(Bucket="killed-uploads")
    stored = {
        "objects": "s3://killed-uploads",
        "s3_endpoint_url": s3_server.endpoint,
        "s3_public_endpoint_url": s3_server.endpoint,
        "s3_access_key_id": s3_server.access_key,
        "s3_secret_access_key": s3_server.secret_key,
    }
    asked = """
import httpx
from fastapi.testclient import TestClient
from api.app import create_app
with TestClient(create_app(settings), base_url="http://localhost") as client:
    body = {"name": "reel.wav", "bytes": 4, "sha256": "0" * 64}
    upload = client.post("/v1/uploads", json=body).json()
    (part,) = client.get(f"/v1/uploads/{upload['id']}/parts").json()["items"]
    httpx.put(part["url"], content=b"RIFF").raise_for_status()
    client.post(f"/v1/uploads/{upload['id']}/complete")
"""
    for point in ("upload.begun", "upload.joined"):
        kill_at(point, settings, asked, **stored)
    live = start_api(Settings.model_validate(settings.model_dump() | stored))
    services = live.services
    # The first left a stray; the second an object whose row says that it is open, which is completed again
    assert len(list(find_strays(services.database, services.objects, STRAY_SECONDS))) <= 1
    body = {"name": "reel.wav", "bytes": 4, "sha256": "0" * 64}
    with httpx.Client(base_url=live.url, timeout=60) as client:
        again = client.post("/v1/uploads", json=body)
        assert (again.status_code, again.json()["state"]) == (200, "open")
        done = client.post(f"/v1/uploads/{again.json()['id']}/complete")
        assert (done.status_code, done.json()["state"]) == (200, "complete")
        job = client.post("/v1/jobs", json={"source": again.json()["source"]})
        assert job.status_code == 202, job.text
    delete_once(services.database, services.objects, services.settings, "dlr_test")
    assert list(find_strays(services.database, services.objects, STRAY_SECONDS)) == []
    assert [item.key for item in services.objects.list()] == [f"jobs/{job.json()['id']}/source"]
    assert audit(services.database, services.objects, Grace(upload_seconds=-60)).clean
