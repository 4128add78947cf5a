"""Jobs whose recordings lie in somebody else's bucket, from their claim to their end."""

from collections.abc import Callable, Iterator

import pytest

from ops.testbed.jobs import WorkerHarness, speechlike
from ops.testbed.s3 import S3Server
from spool.background import SourceSigner
from spool.domain import JobOptions, JobState, Source
from spool.ids import new_id
from spool.settings import SecretBox
from spool.store import NewJob, create_connection, create_job, remove_connection
from spool.tables.exports import NewConnection
from tests.live.guarded_s3 import Account, GuardedS3

pytestmark = pytest.mark.integration
BOX = SecretBox(("a key of more than 32 characters that only the API has",))


@pytest.fixture
def theirs(s3_server: S3Server) -> Iterator[tuple[GuardedS3, Account]]:
    bucket = new_id("in").lower().replace("_", "-")
    s3_server.client().create_bucket(Bucket=bucket)
    account = Account("THEIRKEY", "their secret", frozenset({bucket}))
    with GuardedS3(s3_server.endpoint, account) as store:
        yield store, account


def test_a_job_is_done_with_a_connection_and_fails_alone_once_it_is_revoked(
    make_harness: Callable[..., WorkerHarness],
    theirs: tuple[GuardedS3, Account],
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spool.background.source_signer.LOOK_S", 0.02)
    store, account = theirs
    (bucket,) = account.buckets
    harness = make_harness()
    recording = harness.record("reel.wav", speechlike(2.0))
    s3_server.client().upload_file(str(recording), bucket, "reel.wav")
    keys = (store.url, "us-east-1", f"s3://{bucket}/", account.key_id, account.secret, "read")
    with harness.db.begin() as tx:
        create_connection(tx, NewConnection("default", "film", *keys), BOX)  # type: ignore[arg-type]
        source = Source("s3", f"s3://{bucket}/reel.wav", connection="film")
        options = JobOptions(model="plain", speech_detector=False)
        first, second = (create_job(tx, NewJob(source, options, "reel"))[0].id for _ in range(2))
    own = harness.submit(recording)
    signer = SourceSigner(harness.db, harness.settings, BOX)
    signer.start()
    try:
        assert harness.run(first) == "done"
        with harness.db.begin() as tx:
            remove_connection(tx, "default", "film")
        assert harness.run(second) == "failed"
        assert harness.run(own) == "done"
    finally:
        signer.stop()
    done, failed = harness.job(first), harness.job(second)
    assert (done.source.connection, done.words is not None) == ("film", True)
    assert (failed.state, failed.error_code) == (JobState.FAILED, "source_forbidden")
    assert failed.error_message == "reel: Project default has no connection film."
