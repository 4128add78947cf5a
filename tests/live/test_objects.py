"""One conformance suite that every form of the object store passes: a folder, and S3 over real HTTP.

Below it, what only one form can show: a full disk, a body that breaks off, a store that does not answer.
"""

import hashlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from ops.testbed.faulty_s3 import FaultyS3, Rule
from ops.testbed.s3 import S3Server
from spool.errors import (
    DiskFull,
    InvalidRequest,
    NotFound,
    ObjectDamaged,
    SourceChanged,
    SourceForbidden,
    SpoolError,
    StorageError,
)
from spool.objects import (
    FolderStore,
    NewObject,
    ObjectStore,
    S3Options,
    S3Store,
    check_key,
    hash_file,
    object_store,
    read_range,
    read_verified,
    s3,
    s3_store,
)
from spool.settings import Settings
from tests.live.guarded_s3 import Account, GuardedS3

KEY = "jobs/job_01/transcript.json"
BUCKET = "spool-test"


def s3_options(server: S3Server, endpoint: str | None = None) -> S3Options:
    return S3Options(
        endpoint_url=endpoint or server.endpoint,
        region=server.region,
        access_key_id=SecretStr(server.access_key),
        secret_access_key=SecretStr(server.secret_key),
    )


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """A bucket with nothing in it."""
    client = s3_server.client()
    if BUCKET not in [known["Name"] for known in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    for item in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=item["Key"])
    client.close()
    return BUCKET


@pytest.fixture
def s3_objects(s3_server: S3Server, bucket: str) -> S3Store:
    return S3Store(bucket, "a/prefix", s3_options(s3_server))


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return FolderStore(tmp_path / "objects")
    return request.getfixturevalue("s3_objects")


class TestConformance:
    def test_what_is_put_is_what_is_got(self, store: ObjectStore, tmp_path: Path) -> None:
        data = bytes(range(256)) * 5000
        source = tmp_path / "source.bin"
        source.write_bytes(data)

        put = store.put_file(KEY, source, "audio/wav")

        assert (put.key, put.size, put.sha256) == (KEY, len(data), hashlib.sha256(data).hexdigest())
        with store.open(KEY) as stream:
            assert stream.read() == data
        target = tmp_path / "target.bin"
        got = store.get_file(KEY, target)
        assert target.read_bytes() == data
        assert (got.size, got.sha256, got.etag) == (put.size, put.sha256, put.etag)
        head = store.head(KEY)
        assert head is not None
        assert (head.key, head.size, head.etag) == (KEY, len(data), put.etag)

    @pytest.mark.parametrize("data", [b"", b"x", b"\r\n\x00"])
    def test_small_objects_too(self, store: ObjectStore, tmp_path: Path, data: bytes) -> None:
        assert store.put_bytes(KEY, data).size == len(data)
        with store.open(KEY) as stream:
            assert stream.read() == data
        assert store.get_file(KEY, tmp_path / "t").size == len(data)
        assert (tmp_path / "t").read_bytes() == data

    def test_several_are_put_at_once(self, store: ObjectStore) -> None:
        store.put_bytes("jobs/b/old", b"old")
        data = {"jobs/a/1": b"", "jobs/a/2": b"two", "jobs/b/old": b"new" * 100_000, "top": b"x"}
        store.put_several([NewObject(key, value, "text/plain") for key, value in data.items()])
        store.put_several([])
        assert [each.key for each in store.list()] == sorted(data)
        for key, value in data.items():
            with store.open(key) as stream:
                assert stream.read() == value

    def test_a_second_put_replaces_the_first(self, store: ObjectStore) -> None:
        first = store.put_bytes(KEY, b"first")
        second = store.put_bytes(KEY, b"second one")
        assert first.etag != second.etag
        with store.open(KEY) as stream:
            assert stream.read() == b"second one"

    def test_a_reader_of_the_old_object_is_not_disturbed(self, store: ObjectStore) -> None:
        store.put_bytes(KEY, b"old" * 100_000)
        with store.open(KEY) as stream:
            begin = stream.read(3)
            store.put_bytes(KEY, b"new" * 100_000)
            rest = stream.read()
        assert begin + rest == b"old" * 100_000

    def test_what_is_not_there_is_not_found(self, store: ObjectStore, tmp_path: Path) -> None:
        assert store.head(KEY) is None
        with pytest.raises(NotFound, match="transcript"):
            store.open(KEY)
        with pytest.raises(NotFound):
            store.get_file(KEY, tmp_path / "t")
        assert not (tmp_path / "t").exists()
        store.delete(KEY)
        assert list(store.list()) == []

    def test_a_deleted_object_is_gone(self, store: ObjectStore) -> None:
        store.put_bytes(KEY, b"x")
        store.delete(KEY)
        assert store.head(KEY) is None
        store.put_bytes(KEY, b"y")
        assert store.head(KEY) is not None

    def test_a_read_with_another_etag_is_refused(self, store: ObjectStore, tmp_path: Path) -> None:
        old = store.put_bytes(KEY, b"old")
        assert store.get_file(KEY, tmp_path / "t", old.etag).etag == old.etag
        store.put_bytes(KEY, b"newer")

        with pytest.raises(SourceChanged):
            store.get_file(KEY, tmp_path / "u", old.etag)
        with pytest.raises(SourceChanged):
            store.open(KEY, old.etag)
        assert not (tmp_path / "u").exists()

    def test_lists_are_by_key_and_by_prefix(self, store: ObjectStore) -> None:
        keys = ["jobs/b/source", "jobs/a/source", "jobs/a/transcript.txt", "other", "jobs2/x"]
        for key in keys:
            store.put_bytes(key, key.encode())

        assert [info.key for info in store.list()] == sorted(keys)
        assert [info.key for info in store.list("jobs/")] == [
            "jobs/a/source",
            "jobs/a/transcript.txt",
            "jobs/b/source",
        ]
        assert [info.key for info in store.list("jobs/a/s")] == ["jobs/a/source"]
        assert [info.size for info in store.list("other")] == [5]
        assert list(store.list("none")) == []

    @pytest.mark.parametrize(
        "key",
        [
            "",
            "/abs",
            "a//b",
            "a/../b",
            "..",
            "a/.",
            ".tmp/x",
            "a/",
            "a\\b",
            "a\nb",
            "a\0b",
            "C:/x",
            "x" * 1025,
            "~/x",
        ],
    )
    def test_a_key_that_could_lead_elsewhere_is_refused(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(InvalidRequest):
            store.put_bytes(key, b"x")
        assert list(store.list()) == []

    def test_a_source_that_vanished_or_a_target_that_cannot_be_written(
        self, store: ObjectStore, tmp_path: Path
    ) -> None:
        with pytest.raises(StorageError):
            store.put_file(KEY, tmp_path / "gone")
        assert store.head(KEY) is None
        store.put_bytes(KEY, b"x")
        with pytest.raises(StorageError):
            store.get_file(KEY, tmp_path / "no" / "folder" / "t")

    def test_many_writers_of_one_key_leave_one_whole_object(self, store: ObjectStore) -> None:
        store.put_bytes(KEY, b"0" * 200_000)
        seen: list[bytes] = []

        def write(byte: int) -> None:
            store.put_bytes(KEY, bytes([byte]) * 200_000)
            with store.open(KEY) as stream:
                seen.append(stream.read())

        threads = [threading.Thread(target=write, args=(48 + number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 6
        assert all(len(data) == 200_000 and len(set(data)) == 1 for data in seen)

    def test_a_stream_reads_in_pieces(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * 20_000
        store.put_bytes(KEY, data)
        with store.open(KEY) as stream:
            pieces = []
            while piece := stream.read(700_001):
                pieces.append(piece)
        assert b"".join(pieces) == data

    def test_a_stream_can_begin_anywhere(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * 8192
        etag = store.put_bytes(KEY, data).etag
        for start in (0, 1, 1_000_001, len(data) - 1):
            with store.open(KEY, etag, start=start) as stream:
                assert stream.read() == data[start:]

    def test_a_store_that_is_there_says_so(self, store: ObjectStore) -> None:
        store.check()


def test_keys_of_jobs_are_keys() -> None:
    assert check_key("jobs/job_01K9ABC/transcript.2f.json") == "jobs/job_01K9ABC/transcript.2f.json"


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "objects")
    store.put_bytes("jobs/a", b"x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "objects" / "out").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidRequest, match="out of"):
        store.put_bytes("out/x", b"x")
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_folder_leaves_no_temporary_files(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "objects")
    store.put_bytes(KEY, b"x")
    store.get_file(KEY, tmp_path / "t")
    store.delete(KEY)
    assert [path for path in (tmp_path / "objects").rglob("*") if path.name != ".tmp"] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["objects", "t"]


FULL_DISK = """
import resource, sys
from pathlib import Path
from spool.errors import DiskFull
from spool.objects import FolderStore
from spool.objects.base import NewObject
store = FolderStore(Path(sys.argv[1]))
store.put_bytes("jobs/a", b"before")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for put in (
    lambda: store.put_bytes("jobs/a", b"x" * 200_000),
    lambda: store.put_several([NewObject("jobs/a", b"after"), NewObject("jobs/b", b"x" * 200_000)]),
):
    try:
        put()
    except DiskFull as error:
        print(error.message)
"""


def test_a_write_that_does_not_fit_is_disk_full_and_changes_nothing(tmp_path: Path) -> None:
    """The kernel refuses the write: by a limit on file size, as a full disk can't be made without being
    root."""
    root = tmp_path / "objects"
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(root)], capture_output=True, text=True, check=True
    )

    assert run.stdout == "No space is left to store jobs/a.\n" * 2
    assert (root / "jobs" / "a").read_bytes() == b"before"
    assert list((root / ".tmp").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = FolderStore(tmp_path / "file" / "objects")
    for ask in (store.check, lambda: store.put_bytes(KEY, b"x")):
        with pytest.raises(StorageError):
            ask()


def test_large_files_go_in_parts(
    s3_objects: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "MULTIPART_BYTES", 5 * 2**20)
    source = tmp_path / "large"
    source.write_bytes(bytes(range(256)) * (12 * 2**20 // 256))

    put = s3_objects.put_file("jobs/a/source", source, "audio/flac")

    assert put.size == 12 * 2**20
    assert "-" in put.etag, "the mark of an object made of parts"
    assert s3_objects.get_file("jobs/a/source", tmp_path / "back").sha256 == put.sha256
    head = s3_objects.head("jobs/a/source")
    assert head is not None
    assert head.sha256 == put.sha256


def test_a_folder_lists_by_key_and_in_pieces(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "objects")
    keys = ["a-b", "a/b/c", "a/b-c", "a.b", "aa/a", "b"]
    for key in keys:
        store.put_bytes(key, b"x")
    (tmp_path / "objects" / "a" / "linked").symlink_to(tmp_path)

    listing = store.list()
    assert next(listing).key == "a-b"
    store.delete("a/b/c")  # what goes away while it is listed is not in the list
    assert [info.key for info in listing] == sorted(set(keys) - {"a-b", "a/b/c"})
    assert [info.key for info in store.list("a/b")] == ["a/b-c"]
    with pytest.raises(InvalidRequest):
        list(store.list("../a/"))


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyS3]:
    with FaultyS3(s3_server.endpoint) as running:
        yield running


def test_a_body_cut_short_is_fetched_on_from_where_it_broke(
    s3_server: S3Server, bucket: str, proxy: FaultyS3, tmp_path: Path
) -> None:
    store = S3Store(bucket, "", s3_options(s3_server, proxy.url))
    data = bytes(range(256)) * 12_000
    store.put_bytes(KEY, data)

    proxy.rules += [Rule("GET", KEY, cut=1_000_000), Rule("GET", KEY, cut=1_500_000)]
    assert store.get_file(KEY, tmp_path / "t").size == len(data)
    assert (tmp_path / "t").read_bytes() == data
    assert proxy.ranges == ["bytes=1000000-", "bytes=2500000-"]

    proxy.rules.append(Rule("GET", KEY, 20, cut=10))
    with pytest.raises(StorageError, match="broke off at byte 60"):
        store.get_file(KEY, tmp_path / "u")
    assert not (tmp_path / "u").exists()


def test_an_object_replaced_between_two_pieces_is_a_changed_source(
    s3_server: S3Server, bucket: str, proxy: FaultyS3
) -> None:
    store = S3Store(bucket, "", s3_options(s3_server, proxy.url))
    store.put_bytes(KEY, b"old" * 1_000_000)
    proxy.rules.append(Rule("GET", KEY, cut=500_000))
    with store.open(KEY) as stream:
        stream.read(100)
        store.put_bytes(KEY, b"new" * 1_000_000)
        with pytest.raises(SourceChanged):
            stream.read()


@pytest.mark.parametrize(
    ("status", "error"),
    [(503, StorageError), (500, StorageError), (409, StorageError), (403, SourceForbidden), (507, DiskFull)],
)
def test_what_a_store_answers_has_a_name(
    s3_server: S3Server, bucket: str, proxy: FaultyS3, status: int, error: type[SpoolError]
) -> None:
    store = S3Store(bucket, "", s3_options(s3_server, proxy.url))
    proxy.rules.append(Rule("", KEY, 100, status))
    for ask in (lambda: store.put_bytes(KEY, b"x"), lambda: store.open(KEY), lambda: store.head(KEY)):
        with pytest.raises(error) as refusal:
            ask()
        assert s3_server.secret_key not in str(refusal.value)
        assert s3_server.access_key not in str(refusal.value)


def test_a_store_that_is_not_there_is_a_storage_error(s3_server: S3Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        store = S3Store("bucket", "", s3_options(s3_server, endpoint))
        with pytest.raises(StorageError, match="does not answer"):
            store.check()


def test_a_bucket_that_is_not_there_or_has_no_lawful_name(s3_server: S3Server) -> None:
    missing = S3Store("no-such-bucket", "", s3_options(s3_server))
    with pytest.raises(NotFound):
        missing.check()
    with pytest.raises(NotFound):
        missing.put_bytes(KEY, b"x")
    with pytest.raises(InvalidRequest):
        S3Store("not a bucket!", "", s3_options(s3_server)).check()


def test_sources_may_have_any_key(
    s3_server: S3Server, bucket: str, tmp_path: Path, make_settings: Callable[..., Settings]
) -> None:
    key = "Sammlung 1/été (1)/../ ü+%20.wav"
    client = s3_server.client()
    client.put_object(Bucket=bucket, Key=key, Body=b"RIFF")
    client.close()
    settings = make_settings(
        objects=f"s3://{bucket}/p",
        s3_endpoint_url=s3_server.endpoint,
        s3_access_key_id=s3_server.access_key,
        s3_secret_access_key=s3_server.secret_key,
    )
    source = s3_store(settings, bucket)

    info = source.head(key)
    assert info is not None
    assert source.get_file(key, tmp_path / "t", info.etag).size == 4
    assert isinstance(object_store(settings), S3Store)
    assert isinstance(object_store(make_settings()), FolderStore)


def test_credentials_that_were_exchanged_are_found_without_a_restart(
    s3_server: S3Server,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_settings: Callable[..., Settings],
) -> None:
    """As of those who get new ones each hour, in the file that boto3 reads."""
    file = tmp_path / "credentials"

    def exchange(secret: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = KEY\naws_secret_access_key = {secret}\n")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    with GuardedS3(s3_server.endpoint, Account("KEY", "new", frozenset({bucket}))) as guarded:
        store = s3_store(make_settings(s3_endpoint_url=guarded.url), bucket)
        with pytest.raises(StorageError, match=f"There are no credentials for s3://{bucket}/{KEY}"):
            store.put_bytes(KEY, b"x")
        exchange("old")
        for _ in range(2):
            with pytest.raises(StorageError, match="does not take the credentials"):
                store.put_bytes(KEY, b"x")
        with pytest.raises(SourceForbidden):
            store.head(KEY)  # the answer to a HEAD has no room for a reason
        exchange("new")
        store.put_bytes(KEY, b"x")
        assert store.head(KEY) is not None
        assert s3_store(make_settings(s3_endpoint_url=guarded.url), bucket) is store


def test_a_store_shows_no_secret(s3_server: S3Server) -> None:
    store = S3Store("b", "p", s3_options(s3_server))
    assert s3_server.secret_key not in repr(store) + repr(store.options)


@pytest.mark.parametrize("at", [0, 70_000, 199_999])
def test_a_byte_that_flips_between_the_bucket_and_here_is_noticed(
    s3_server: S3Server, bucket: str, proxy: FaultyS3, tmp_path: Path, at: int
) -> None:
    data = bytes(range(250)) * 800
    store = S3Store(bucket, "", s3_options(s3_server, proxy.url))
    put = store.put_bytes(KEY, data)
    proxy.rules.append(Rule("GET", KEY, flip=at))
    with pytest.raises(StorageError, match="damaged on its way"), store.open(KEY, put.etag) as stream:
        stream.read()
    proxy.rules.append(Rule("GET", KEY, flip=at))
    with pytest.raises(StorageError, match="damaged on its way"):
        store.get_file(KEY, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    # A store without CRCs: the recorded hashes notice.
    (tmp_path / "data").write_bytes(data)
    sha256, hashes = hash_file(tmp_path / "data")
    plain = S3Store(bucket, "", replace(s3_options(s3_server, proxy.url), checksums=False))
    proxy.rules.append(Rule("GET", KEY, times=2, flip=at))
    with pytest.raises(ObjectDamaged):
        read_verified(plain, KEY, sha256)
    with pytest.raises(ObjectDamaged):
        list(read_range(plain, KEY, None, hashes, 0, len(data)))


def test_an_answer_with_another_etag_is_refused_whatever_was_asked(
    s3_server: S3Server, bucket: str, proxy: FaultyS3
) -> None:
    store = S3Store(bucket, "", s3_options(s3_server, proxy.url))
    put = store.put_bytes(KEY, bytes(100_000))
    proxy.rules.append(Rule("GET", KEY, etag='"another"'))
    with pytest.raises(SourceChanged):
        store.open(KEY, put.etag)
    # And where a connection broke in the middle.
    proxy.rules += [Rule("GET", KEY, cut=10_000), Rule("GET", KEY, etag='"another"')]
    with store.open(KEY) as stream, pytest.raises(SourceChanged):
        stream.read()
