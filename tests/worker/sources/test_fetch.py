"""Sources of every kind, fetched from real servers on loopback."""

import http.server
import os
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from ops.testbed.s3 import S3Server
from spool.domain import Source
from spool.errors import (
    DiskFull,
    FolderMissing,
    InvalidRequest,
    JobCancelled,
    ObjectDamaged,
    ShareForbidden,
    ShareMissing,
    SourceChanged,
    SourceError,
    SourceForbidden,
    SourceMissing,
    SourceTooLarge,
    SpoolError,
    StorageError,
)
from spool.objects import FolderStore, hash_file
from spool.settings import Settings
from tests.faults.small_disk import can_mount, small_disk
from tests.worker.sources import certificates
from worker.sources import Sources

pytestmark = pytest.mark.integration

BODY = b"RIFF" + bytes(range(256)) * 4096


class Site(http.server.BaseHTTPRequestHandler):
    """Answers by path: what servers do, and what they should not."""

    def do_GET(self) -> None:
        if self.path == "/good.wav":
            self._answer(200, BODY)
        elif self.path == "/moved.wav":
            self._answer(302, b"", Location="/good.wav")
        elif self.path == "/circle.wav":
            self._answer(302, b"", Location="/circle.wav")
        elif self.path == "/plain.wav":
            self._answer(302, b"", Location=f"http://127.0.0.1:{self.connection.getsockname()[1]}/good.wav")
        elif self.path == "/nowhere.wav":
            self._answer(302, b"", Location="https://xn--/good.wav")
        elif self.path == "/inside.wav":
            self._answer(302, b"", Location=f"https://127.0.0.1:{self.connection.getsockname()[1]}/good.wav")
        elif self.path == "/short.wav":
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY[:1000])
            self.close_connection = True
        else:
            self._answer(int(self.path.strip("/").partition("?")[0]), b"no")

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over TLS whose certificate the client is told to trust."""
    certificate, key = certificates.for_localhost(tmp_path_factory.mktemp("tls"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def make_sources(make_settings: Callable[..., Settings], tmp_path: Path) -> Callable[..., Sources]:
    def make(**settings: object) -> Sources:
        told: dict[str, object] = {"source_private_hosts": ("localhost", "127.0.0.1"), **settings}
        return Sources(make_settings(**told), FolderStore(tmp_path / "objects"), tmp_path / "tmp")

    return make


def fetch(sources: Sources, kind: str, uri: str, **facts: object) -> bytes:
    with sources.fetch(Source(kind, uri, **facts), "talk.wav") as path:  # type: ignore[arg-type]
        return path.read_bytes()


@pytest.mark.parametrize("path", ["/good.wav", "/moved.wav"])
def test_https_is_streamed_into_a_file(site: str, make_sources: Callable[..., Sources], path: str) -> None:
    assert fetch(make_sources(), "https", site + path) == BODY


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/404", SourceMissing, "HTTP 404"),
        ("/410", SourceMissing, "HTTP 410"),
        ("/403", SourceForbidden, "HTTP 403"),
        ("/401", SourceForbidden, "HTTP 401"),
        ("/400", SourceError, "HTTP 400"),
        ("/429", StorageError, "HTTP 429"),
        ("/503", StorageError, "HTTP 503"),
        ("/circle.wav", SourceError, "circle"),
        ("/nowhere.wav", SourceError, "not an address that can be fetched"),
        ("/short.wav", StorageError, "/short.wav"),
    ],
)
def test_https_answers_say_whether_to_try_again(
    site: str, make_sources: Callable[..., Sources], path: str, error: type[SpoolError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        fetch(make_sources(), "https", site + path)
    assert caught.value.message.startswith("talk.wav: ")


def test_https_never_leaves_tls(site: str, make_sources: Callable[..., Sources]) -> None:
    with pytest.raises(SourceForbidden, match="without https"):
        fetch(make_sources(), "https", site + "/plain.wav")


def test_https_stays_off_what_is_not_public(site: str, make_sources: Callable[..., Sources]) -> None:
    for sources in (
        make_sources(source_private_hosts=()),
        make_sources(source_private_hosts=("other.test",)),
    ):
        with pytest.raises(SourceForbidden, match=r"^talk.wav: localhost is not a public host") as caught:
            fetch(sources, "https", site + "/good.wav")
        assert "127.0.0.1" not in caught.value.message
        assert not caught.value.retryable


def test_a_redirect_is_judged_as_the_address_itself(site: str, make_sources: Callable[..., Sources]) -> None:
    with pytest.raises(SourceForbidden, match=r"^talk.wav: 127.0.0.1 is not a public host"):
        fetch(make_sources(source_private_hosts=("localhost",)), "https", site + "/inside.wav")


def test_hosts_that_the_settings_do_not_name_are_refused(
    site: str, make_sources: Callable[..., Sources]
) -> None:
    with pytest.raises(SourceForbidden, match=r"example\.org is not among the hosts"):
        fetch(make_sources(source_hosts=("*.example.net",)), "https", "https://example.org/a.wav")


def test_a_signed_address_is_in_no_error(site: str, make_sources: Callable[..., Sources]) -> None:
    with pytest.raises(SourceMissing) as caught:
        fetch(make_sources(), "https", site.replace("//", "//user:pass@") + "/404?signature=secret")
    assert "secret" not in str(caught.value)
    assert "pass" not in str(caught.value)


def test_https_is_cut_off_at_the_limit(
    site: str, make_sources: Callable[..., Sources], tmp_path: Path
) -> None:
    with pytest.raises(SourceTooLarge, match="larger than the limit"):
        fetch(make_sources(upload_max_bytes=1000), "https", site + "/good.wav")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_size_of_what_lies_elsewhere_is_limited_too(
    s3_server: S3Server, make_sources: Callable[..., Sources], tmp_path: Path
) -> None:
    client = s3_server.client()
    client.create_bucket(Bucket="large")
    client.put_object(Bucket="large", Key="a.wav", Body=BODY)
    stored = {
        "s3_endpoint_url": s3_server.endpoint,
        "s3_access_key_id": s3_server.access_key,
        "s3_secret_access_key": s3_server.secret_key,
    }
    (tmp_path / "a.wav").write_bytes(BODY)
    small = make_sources(source_max_bytes=1000, source_roots=(tmp_path,), **stored)
    for kind, uri in (("s3", "s3://large/a.wav"), ("file", (tmp_path / "a.wav").as_uri())):
        for known in ({}, {"size": len(BODY)}):
            with pytest.raises(SourceTooLarge, match="the limit of 1000 bytes"):
                fetch(small, kind, uri, **known)
    fits = make_sources(source_max_bytes=len(BODY), **stored)
    assert fetch(fits, "s3", "s3://large/a.wav", size=len(BODY)) == BODY
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_last_of_the_disk_is_left_alone(site: str, make_sources: Callable[..., Sources]) -> None:
    full = make_sources(disk_floor_bytes=2**62)
    for known in ({}, {"size": 1}):
        with pytest.raises(DiskFull, match="no space is left"):
            fetch(full, "https", site + "/good.wav", **known)


def test_a_fetch_stops_when_asked(site: str, make_sources: Callable[..., Sources]) -> None:
    def stop() -> None:
        raise JobCancelled

    source = Source("https", site + "/good.wav")
    with pytest.raises(JobCancelled), make_sources().fetch(source, "talk.wav", stop):
        pass


def test_a_server_that_is_not_there_may_come_back(make_sources: Callable[..., Sources]) -> None:
    with pytest.raises(StorageError, match="does not answer"):
        fetch(make_sources(), "https", "https://127.0.0.1:1/a.wav")


def test_s3_is_pinned_to_its_etag(s3_server: S3Server, make_sources: Callable[..., Sources]) -> None:
    client = s3_server.client()
    client.create_bucket(Bucket="archive")
    etag = client.put_object(Bucket="archive", Key="a/t?lk.wav", Body=BODY)["ETag"]
    sources = make_sources(
        s3_endpoint_url=s3_server.endpoint,
        s3_access_key_id=s3_server.access_key,
        s3_secret_access_key=s3_server.secret_key,
    )
    assert fetch(sources, "s3", "s3://archive/a/t?lk.wav", etag=etag) == BODY
    client.put_object(Bucket="archive", Key="a/t?lk.wav", Body=BODY[:-1])
    with pytest.raises(SourceChanged):
        fetch(sources, "s3", "s3://archive/a/t?lk.wav", etag=etag)
    with pytest.raises(SourceMissing):
        fetch(sources, "s3", "s3://archive/gone.wav")
    with pytest.raises(SourceMissing):
        fetch(sources, "s3", "s3://nobucket/gone.wav")
    with pytest.raises(InvalidRequest):
        fetch(sources, "s3", "s3://archive")


def test_an_upload_that_was_damaged_is_not_decoded(
    make_sources: Callable[..., Sources], tmp_path: Path
) -> None:
    (tmp_path / "tape").write_bytes(BODY)
    _, hashes = hash_file(tmp_path / "tape")
    stored = FolderStore(tmp_path / "objects").put_file("jobs/a/source", tmp_path / "tape")
    source = Source("upload", "jobs/a/source", len(BODY))
    with make_sources().fetch(source, "talk.wav", hashes=hashes) as path:
        assert path.read_bytes() == BODY
    data = bytearray(BODY)
    data[len(BODY) // 2] ^= 1
    (tmp_path / "objects" / stored.key).write_bytes(data)
    with pytest.raises(ObjectDamaged), make_sources().fetch(source, "talk.wav", hashes=hashes):
        pass


def test_files_count_where_their_bytes_are(make_sources: Callable[..., Sources], tmp_path: Path) -> None:
    root = tmp_path / "räume und töne"
    root.mkdir()
    inside = root / "50% a#b?.wav"
    inside.write_bytes(BODY)
    outside = tmp_path / "outside.wav"
    outside.write_bytes(BODY)
    (root / "in.wav").symlink_to(inside)
    (root / "out.wav").symlink_to(outside)
    (root / "loop.wav").symlink_to(root / "loop.wav")
    sources = make_sources(source_roots=(root,))
    for path in (inside, root / "in.wav"):
        assert fetch(sources, "file", path.as_uri()) == BODY
    for path in (root / "out.wav", root / "loop.wav", root):
        with pytest.raises(SourceForbidden):
            fetch(sources, "file", f"file://{quote(str(path))}")
    for path in (outside, root / ".." / "outside.wav"):
        with pytest.raises(ShareForbidden):
            fetch(sources, "file", f"file://{quote(str(path))}")
    with pytest.raises(SourceMissing):
        fetch(sources, "file", (root / "gone.wav").as_uri())
    with pytest.raises(ShareForbidden):
        fetch(make_sources(), "file", inside.as_uri())


def test_a_share_that_is_not_there_is_told_from_a_file_that_is_gone(
    make_sources: Callable[..., Sources], tmp_path: Path
) -> None:
    root, other = tmp_path / "share", tmp_path / "other"
    other.mkdir()
    (other / "a.wav").write_bytes(BODY)
    sources = make_sources(source_roots=(root, other))
    gone = (root / "reel 1" / "a.wav").as_uri()
    with pytest.raises(ShareMissing, match="No such file"):
        fetch(sources, "file", gone)
    root.mkdir()  # where its disk is mounted
    (root / ".DS_Store").write_bytes(b"")
    with pytest.raises(ShareMissing, match="is empty"):
        fetch(sources, "file", gone)
    (root / "reel 2").mkdir()
    with pytest.raises(FolderMissing, match="No such file"):
        fetch(sources, "file", gone)
    (root / "reel 1").mkdir()
    with pytest.raises(FolderMissing, match="is empty here"):
        fetch(sources, "file", gone)
    (root / "reel 1" / "b.wav").write_bytes(BODY)
    for address in (gone, (other / "b.wav").as_uri()):
        with pytest.raises(SourceMissing):
            fetch(sources, "file", address)
    # A link that leads out is the recording's fault, not that of the worker's settings
    (other / "out.wav").symlink_to(tmp_path / "secret.wav")
    (tmp_path / "secret.wav").write_bytes(BODY)
    with pytest.raises(SourceForbidden):
        fetch(sources, "file", (other / "out.wav").as_uri())


@pytest.mark.skipif(not can_mount(), reason="only root on Linux can mount a disk")
def test_a_root_that_lost_its_disk_is_missing_whatever_lies_below_it(
    make_sources: Callable[..., Sources], tmp_path: Path
) -> None:
    root = tmp_path / "share"
    root.mkdir()
    (root / "not-mounted.txt").write_text("mount the NAS here")
    sources = make_sources(source_roots=(root,))
    with small_disk(root, 8):
        (root / "a.wav").write_bytes(BODY)
        sources.shares.remember_mounts()
        assert fetch(sources, "file", (root / "a.wav").as_uri()) == BODY
    with pytest.raises(ShareMissing, match="no longer mounted"):
        fetch(sources, "file", (root / "a.wav").as_uri())


def test_names_on_disk_need_not_be_utf_8(make_sources: Callable[..., Sources], tmp_path: Path) -> None:
    root = tmp_path / "tapes"
    root.mkdir()
    path = Path(os.fsdecode(os.fsencode(root) + b"/Gespr\xe4ch \xff 1.wav"))
    try:
        path.write_bytes(BODY)
    except OSError:  # a file system (APFS) that takes UTF-8 alone
        assert sys.platform == "darwin"
        return
    assert fetch(make_sources(source_roots=(root,)), "file", path.as_uri()) == BODY
