"""Recordings in somebody else's bucket, read by a worker that has none of their credentials."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from ops.testbed.faulty_s3 import Rule
from ops.testbed.s3 import S3Server
from spool.background import VALID_SECONDS, SourceSigner
from spool.domain import JobOptions, Source
from spool.errors import ObjectDamaged, SourceChanged, SourceForbidden, SourceMissing, StorageError
from spool.objects import FolderStore, s3_parts
from spool.settings import SecretBox, Settings
from spool.store import (
    Database,
    NewJob,
    create_connection,
    create_job,
    remove_connection,
    seconds_from_now,
    take_link,
)
from spool.tables import source_links
from spool.tables.exports import NewConnection
from tests.live.guarded_s3 import Account, GuardedS3
from worker.sources import ANSWER_SECONDS, SignedLink, Sources

pytestmark = pytest.mark.integration

PART = 100_000
BODY = random.Random(21).randbytes(4 * PART + 37)
OURS = Account("OURKEY", "our secret", frozenset({"ours"}))
THEIRS = Account("THEIRKEY", "their secret", frozenset({"theirs"}))
BOX = SecretBox(("a key of more than 32 characters that only the API has",))


@pytest.fixture
def store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedS3]:
    """Two accounts' buckets; a recording counts as large and is one of five parts."""
    monkeypatch.setattr("spool.objects.s3.PARALLEL_BYTES", len(BODY))
    monkeypatch.setattr(s3_parts, "PART_BYTES", PART)
    client = s3_server.client()
    for bucket in ("ours", "theirs"):
        with suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=bucket)
        client.put_object(Bucket=bucket, Key="in/réel 1+?.wav", Body=BODY, ChecksumAlgorithm="CRC32")
    client.close()
    with GuardedS3(s3_server.endpoint, OURS, THEIRS) as proxy:
        yield proxy


class Their:
    """A worker with our credentials, and an API process that signs while the worker waits."""

    def __init__(self, settings: Settings, db: Database, store: GuardedS3, folder: Path) -> None:
        self.db, self.store = db, store
        self.now = 0.0
        self.signs = True
        self.signer = SourceSigner(db, settings, BOX)
        self._sources = Sources(settings, FolderStore(folder / "objects"), folder / "copies")

    def connect(
        self, account: Account = THEIRS, prefix: str = "s3://theirs/in/", access: str = "read"
    ) -> None:
        new = NewConnection(
            "default", "film", self.store.url, "us-east-1", prefix, account.key_id, account.secret
        )
        with self.db.begin() as tx:
            create_connection(tx, replace(new, access=access), BOX)  # type: ignore[arg-type]

    def disconnect(self) -> None:
        with self.db.begin() as tx:
            remove_connection(tx, "default", "film")

    def fetch(self, key: str = "in/réel 1+?.wav", etag: str | None = None) -> bytes:
        source = Source("s3", f"s3://theirs/{key}", None, etag, "film")
        with self._sources.fetch(source, "reel", link=self.link(source)) as path:
            return path.read_bytes()

    def link(self, source: Source) -> SignedLink:
        with self.db.begin() as tx:
            job, _ = create_job(tx, NewJob(source, JobOptions(model="plain"), "reel"))
        return SignedLink(self.db, job.id, read_clock=lambda: self.now, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.signs:
            self.signer.run_once()

    def rows(self) -> int:
        with self.db.read() as tx:
            return int(tx.execute(select(func.count()).select_from(source_links)).scalar_one())


@pytest.fixture
def their(
    request: pytest.FixtureRequest,
    store: GuardedS3,
    make_settings: Callable[..., Settings],
    tmp_path: Path,
) -> Iterator[Their]:
    settings = make_settings(
        s3_endpoint_url=store.url, s3_access_key_id=OURS.key_id, s3_secret_access_key=OURS.secret
    )
    db = Database(request.getfixturevalue(getattr(request, "param", "sqlite_url")))
    yield Their(settings, db, store, tmp_path)
    db.close()


BOTH = pytest.mark.parametrize(
    "their", ["sqlite_url", pytest.param("postgres_url", id="postgresql")], indirect=True
)


@BOTH
def test_their_recording_is_read_in_parts_by_signed_addresses_alone(their: Their) -> None:
    their.connect()
    assert their.fetch() == BODY
    assert len(their.store.ranges) == 5
    assert len(set(their.store.addresses)) == 1
    assert their.rows() == 0, "the address is gone once it was taken"
    with pytest.raises(SourceMissing):
        their.fetch("in/none.wav")


def test_the_workers_own_credentials_do_not_reach_there(their: Their, tmp_path: Path) -> None:
    with (
        pytest.raises(SourceForbidden),
        their._sources.fetch(Source("s3", "s3://theirs/in/réel 1+?.wav"), "reel"),
    ):
        pass
    with their._sources.fetch(Source("s3", "s3://ours/in/réel 1+?.wav"), "reel") as path:
        assert path.read_bytes() == BODY


def test_an_address_that_expires_in_mid_read_is_asked_for_anew(
    their: Their, monkeypatch: pytest.MonkeyPatch
) -> None:
    their.connect()
    monkeypatch.setattr(s3_parts, "CONNECTIONS", 1)
    passed = their.store.refusal

    def refusal(*request: object) -> str | None:
        if len(their.store.addresses) == 3:
            their.store.expired |= set(their.store.addresses)
            # Two of one second would be the same.
            monkeypatch.setattr("spool.background.source_signer.VALID_SECONDS", 901)
        return passed(*request)  # type: ignore[arg-type]

    monkeypatch.setattr(their.store, "refusal", refusal)
    assert their.fetch() == BODY
    assert len(set(their.store.addresses)) == 2


def test_an_address_is_renewed_before_its_time_is_over(their: Their) -> None:
    their.connect()
    link = their.link(Source("s3", "s3://theirs/in/réel 1+?.wav", connection="film"))
    first = link.address()
    assert link.address() == first
    their.now += VALID_SECONDS - 59.0
    their.disconnect()
    with pytest.raises(SourceForbidden, match="no connection film"):
        link.address()


def test_a_store_whose_clock_is_wrong_is_a_refusal_and_no_loop(their: Their) -> None:
    their.connect()
    their.store.ahead = timedelta(hours=1)
    with pytest.raises(SourceForbidden, match="refuses access"):
        their.fetch()


@pytest.mark.parametrize(
    ("account", "said"),
    [
        (replace(THEIRS, secret="wrong"), "connection film: .* does not take the credentials"),
        (replace(THEIRS, key_id="NOKEY"), "connection film: .* does not take the credentials"),
        (OURS, "refuses access"),
    ],
)
def test_credentials_that_do_not_fit_fail_the_job_at_once(their: Their, account: Account, said: str) -> None:
    their.connect(account)
    with pytest.raises(SourceForbidden, match=said):
        their.fetch()


def test_a_connection_that_may_not_read_there_signs_nothing(their: Their) -> None:
    with pytest.raises(SourceForbidden, match="no connection film"):
        their.fetch()
    their.connect(access="write")
    with pytest.raises(SourceForbidden, match="only writes"):
        their.fetch()
    their.disconnect()
    their.connect(prefix="s3://theirs/other/", access="both")
    with pytest.raises(SourceForbidden, match="reads below s3://theirs/other/ only"):
        their.fetch()
    assert not their.store.addresses


def test_a_version_is_pinned_and_its_bytes_are_verified(their: Their) -> None:
    their.connect()
    with pytest.raises(SourceChanged):
        their.fetch(etag='"another"')
    their.store.rules += [Rule("GET", "in/"), Rule("GET", "in/", flip=500)]
    with pytest.raises(ObjectDamaged):
        their.fetch()
    their.store.rules += [Rule("GET", "in/", cut=10), Rule("GET", "in/", cut=70_000)]
    assert their.fetch() == BODY


def test_nobody_who_signs_is_a_failure_that_may_pass(their: Their) -> None:
    their.connect()
    their.signs = False
    with pytest.raises(StorageError, match="SPOOL_SECRET_KEY") as raised:
        their.fetch()
    assert raised.value.retryable
    assert their.now < ANSWER_SECONDS + 1.0
    their.signer = SourceSigner(their.db, their.signer._settings, SecretBox(("another key" * 4,)))
    their.signs = True
    with pytest.raises(StorageError, match="SPOOL_SECRET_KEY"):
        their.fetch()


@BOTH
def test_an_answer_that_nobody_took_is_forgotten_and_never_used(their: Their) -> None:
    their.connect()
    with their.db.begin() as tx:
        source = Source("s3", "s3://theirs/in/réel 1+?.wav", connection="film")
        job, _ = create_job(tx, NewJob(source, JobOptions(model="plain"), "reel"))
        assert take_link(tx, job.id) is None
    their.signer.run_once()
    with their.db.begin() as tx:
        tx.execute(update(source_links).values(expires_at=seconds_from_now(-1)))
        assert take_link(tx, job.id) is None, "it is asked for anew"
    their.signer.run_once()
    assert their.rows() == 1
    with their.db.begin() as tx:
        tx.execute(update(source_links).values(expires_at=seconds_from_now(-1)))
    their.signer.run_once()
    assert their.rows() == 0
