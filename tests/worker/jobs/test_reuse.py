"""The same content with the same options is decoded once: a real worker's jobs over SQLite and a folder.

S3 sources come from a real S3 server over HTTP.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops.testbed.jobs import WorkerHarness, speechlike
from ops.testbed.s3 import S3Server
from spool.audit import audit
from spool.domain import Job, JobOptions, JobState, Source, Transcript
from spool.domain.ledger import NOTHING
from spool.formats import STORED
from spool.store import NewJob, create_job


@pytest.fixture
def worker_settings(gate: Path, s3_server: S3Server) -> dict[str, object]:
    return {
        "models": {"plain": "plain", "gated": f"gate={gate}"},
        "default_model": "plain",
        "s3_endpoint_url": s3_server.endpoint,
        "s3_access_key_id": s3_server.access_key,
        "s3_secret_access_key": s3_server.secret_key,
    }


def file_source(path: Path) -> Source:
    return Source("file", path.as_uri(), path.stat().st_size)


def run(
    harness: WorkerHarness, source: Source, *, reuse: bool = True, project: str = "default", **options: str
) -> Job:
    chosen = JobOptions.model_validate({"model": "plain", **options})
    name = source.uri.rpartition("/")[2]
    with harness.db.begin() as tx:
        job_id = create_job(tx, NewJob(source, chosen, name, project=project, reuse=reuse))[0].id
    assert harness.run(job_id) == "done"
    return harness.job(job_id)


def transcript_of(harness: WorkerHarness, job: Job) -> Transcript:
    assert job.transcript_key is not None
    return Transcript.model_validate_json(harness.read(job.transcript_key))


def test_the_same_bytes_under_another_name_cost_nothing(harness: WorkerHarness) -> None:
    path = harness.record("first.wav", speechlike(60))
    first = run(harness, file_source(path))
    assert first.reused_from is None
    copy = path.with_name("second.wav")
    copy.write_bytes(path.read_bytes())
    decoded = harness.decoded

    second = run(harness, file_source(copy))
    assert harness.decoded == decoded, "no second of engine time"
    assert second.reused_from == first.id
    assert (second.state, second.audio_seconds, second.done_seconds) == (JobState.DONE, 60.0, 60.0)
    assert (second.words, second.coverage) == (first.words, first.coverage)
    assert second.content_sha256 == first.content_sha256
    assert second.transcript_key == f"jobs/{second.id}/attempt-1/transcript.json", "a copy of its own"
    mine, theirs = transcript_of(harness, second), transcript_of(harness, first)
    assert (mine.job, mine.audio.name) == (second.id, "second.wav")
    assert (mine.words, mine.segments, mine.coverage) == (theirs.words, theirs.segments, theirs.coverage)
    for form in STORED:
        assert harness.objects.head(second.transcript_key.replace("json", form)) is not None
    assert harness.cost(second.id) == NOTHING
    harness.assert_bills_equal_busy_time()

    assert audit(harness.db, harness.objects).breaches == []

    third = run(harness, file_source(path))
    assert third.reused_from == first.id, "the job that decoded it, not the one that took it over"


def test_channels_kept_apart_are_taken_over_apart(harness: WorkerHarness) -> None:
    both = np.stack([speechlike(20, 0.2), speechlike(20, 0.6)], axis=1)
    path = harness.record("two.wav", both)
    first = run(harness, file_source(path), channels="separate")
    assert run(harness, file_source(path)).reused_from is None, "mixed is another option"
    second = run(harness, file_source(path), channels="separate")
    assert second.reused_from == first.id
    assert {word.channel for word in transcript_of(harness, second).words} == {0, 1}
    assert audit(harness.db, harness.objects).breaches == []


def test_what_differs_in_anything_is_decoded(harness: WorkerHarness) -> None:
    path = harness.record("a.wav", speechlike(10))
    other = harness.record("b.wav", speechlike(10, 0.2))
    run(harness, file_source(path))
    for job in (
        run(harness, file_source(other)),
        run(harness, file_source(path), decoder="beam"),
        run(harness, file_source(path), project="another"),
        run(harness, file_source(path), reuse=False),
    ):
        decoded = harness.decoded
        assert job.reused_from is None
        assert harness.cost(job.id).engine_seconds > 0
    assert harness.decoded == decoded


def test_other_weights_under_the_same_name_are_another_model(harness: WorkerHarness, tmp_path: Path) -> None:
    path = harness.record("a.wav", speechlike(10))
    run(harness, file_source(path))
    (tmp_path / "gate").touch()
    changed = harness.settings.model_copy(update={"models": {"plain": f"gate={tmp_path / 'gate'}"}})
    context = replace(harness.services.context, settings=changed)
    harness.services = replace(harness.services, context=context)
    assert run(harness, file_source(path)).reused_from is None


def test_a_transcript_that_is_gone_or_spoilt_is_decoded_anew(harness: WorkerHarness) -> None:
    path = harness.record("a.wav", speechlike(10))
    first = run(harness, file_source(path))
    assert first.transcript_key is not None
    harness.objects.put_bytes(first.transcript_key, b"{}")
    second = run(harness, file_source(path))
    assert second.reused_from is None
    for job in (first, second):
        assert job.transcript_key is not None
        harness.objects.delete(job.transcript_key)
    assert run(harness, file_source(path)).reused_from is None


def test_a_failed_or_cancelled_job_is_nobodys_source(harness: WorkerHarness) -> None:
    path = harness.record("a.wav", speechlike(10))
    good = path.read_bytes()
    path.write_bytes(good[:3000])
    job_id = harness.submit(path)
    path.write_bytes(b"no recording" * 250)
    assert harness.run(job_id) == "failed"
    assert harness.job(job_id).content_sha256 is None
    path.write_bytes(good)
    assert run(harness, file_source(path)).reused_from is None


@pytest.fixture
def put(s3_server: S3Server) -> Callable[[str, bytes], Source]:
    client, bucket = s3_server.client(), f"reuse-{time.time_ns()}"
    client.create_bucket(Bucket=bucket)

    def put(key: str, data: bytes) -> Source:
        client.put_object(Bucket=bucket, Key=key, Body=data)
        return Source("s3", f"s3://{bucket}/{key}")

    return put


def test_an_object_of_the_same_etag_is_not_even_fetched(
    harness: WorkerHarness, put: Callable[[str, bytes], Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = harness.record("a.wav", speechlike(10)).read_bytes()
    source = put("Spule 1 ü?.wav", data)
    first = run(harness, source)
    assert first.source.etag
    assert first.source.size == len(data)
    fetched = []
    sources = type(harness.services.sources)
    fetch = sources._s3

    def noted(*args: Any) -> Any:
        fetched.append(args)
        return fetch(*args)

    monkeypatch.setattr(sources, "_s3", noted)
    again = run(harness, source)
    assert again.reused_from == first.id
    assert again.content_sha256 == first.content_sha256
    assert fetched == []
    pinned = replace(source, etag=first.source.etag, size=first.source.size)
    assert run(harness, pinned).reused_from == first.id
    assert fetched == []

    moved = run(harness, put("moved.wav", data))
    assert moved.reused_from == first.id, "by its bytes"
    assert len(fetched) == 1
    put("Spule 1 ü?.wav", harness.record("b.wav", speechlike(12)).read_bytes())
    assert run(harness, source).reused_from is None, "a new version under the old address"
