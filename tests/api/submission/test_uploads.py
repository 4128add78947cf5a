"""Uploads through a real socket: large, too large, cut off, malformed; and what is left of each."""

import os
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from api.submission.uploads import Form, drop_remains
from ops.testbed.running_api import Live, problem, start
from ops.testbed.waiting import until
from spool.errors import DiskFull
from spool.settings import Settings

BOUNDARY = "frontier"
HEADERS = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def part(name: str, content: bytes, *, filename: str | None = None) -> bytes:
    disposition = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename is not None else "")
    head = f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\n\r\n"
    return head.encode() + content + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


def nothing_is_left(live: Live) -> None:
    """No job, object or temporary file; the server may need a moment to notice that a client has gone."""
    folder = live.services.upload_folder
    until(lambda: not folder.exists() or not list(folder.iterdir()), "the end of the temporary files")
    assert list(live.services.objects.list()) == []
    assert httpx.get(f"{live.url}/v1/jobs").json()["items"] == []


def test_an_upload_in_small_pieces_without_a_length_is_taken(live: Live, http: httpx.Client) -> None:
    content = bytes(range(251)) * 800
    whole = part("file", content, filename="a.wav") + END

    def pieces() -> Iterator[bytes]:
        # Odd pieces, so that boundaries and headers are cut everywhere.
        for start_at in range(0, len(whole), 997):
            yield whole[start_at : start_at + 997]

    response = http.post("/v1/jobs", content=pieces(), headers=HEADERS)

    assert response.status_code == 202, response.text
    with live.services.objects.open(response.json()["source"]["uri"]) as stored:
        assert stored.read() == content


def test_an_empty_file_is_taken_for_the_worker_to_judge(http: httpx.Client) -> None:
    response = http.post("/v1/jobs", files={"file": ("empty.wav", b"")})
    assert response.status_code == 202
    assert response.json()["source"]["size"] == 0


@pytest.mark.parametrize("announced", [True, False])
def test_too_large_an_upload_is_refused_and_leaves_nothing(
    live: Live, http: httpx.Client, announced: bool
) -> None:
    content = bytes(live.settings.upload_max_bytes + 1)
    whole = part("file", content, filename="a.wav") + END

    response = http.post("/v1/jobs", content=whole if announced else iter([whole]), headers=HEADERS)

    body = problem(response, 413, "too_large")
    assert body["limit"] == live.settings.upload_max_bytes
    nothing_is_left(live)


def test_a_length_that_is_too_large_is_refused_before_a_byte_is_read(live: Live) -> None:
    answer = raw(live, b"", length=10**12)
    assert answer.startswith(b"HTTP/1.1 413 ")
    nothing_is_left(live)


def test_bytes_after_the_form_do_not_get_around_the_limit(live: Live, http: httpx.Client) -> None:
    whole = part("file", b"RIFF", filename="a.wav") + END
    response = http.post("/v1/jobs", content=iter([whole] + [bytes(2**20)] * 20), headers=HEADERS)
    problem(response, 413, "too_large")
    nothing_is_left(live)


def test_an_upload_that_is_cut_off_leaves_nothing(live: Live) -> None:
    # Given a client that announces more than it sends and goes away
    begun = part("file", bytes(200_000), filename="a.wav")
    raw(live, begun, length=len(begun) + 50_000, read=False)

    nothing_is_left(live)


@pytest.mark.parametrize(
    ("whole", "status"),
    [
        (b"", 400),
        (b"nonsense", 400),
        (END, 422),
        (part("file", b"RIFF", filename="a.wav"), 400),
        (part("file", b"RIFF", filename="a.wav")[:-20], 400),
        (part("request", b"{}") + END, 422),
        (part("file", b"1", filename="a") + part("file", b"2", filename="b") + END, 422),
        (part("file", b"1", filename="a") + part("other", b"2") + END, 422),
        (part("request", b"{") + part("file", b"1", filename="a") + END, 400),
        (part("request", b'{"project": "a/b"}') + part("file", b"1", filename="a") + END, 422),
        (part("request", b'{"source": "file:///x"}') + part("file", b"1", filename="a") + END, 422),
        (part("request", b'{"options": {"model": "x"}}') + part("file", b"1", filename="a") + END, 422),
        (part("request", bytes(16 * 2**20 + 1)) + part("file", b"1", filename="a") + END, 413),
        (f"--{BOUNDARY}\r\n".encode() + b"X: " + b"y" * 10_000 + b"\r\n\r\n" + END, 400),
    ],
)
def test_a_form_with_faults_is_refused_and_leaves_nothing(
    live: Live, http: httpx.Client, whole: bytes, status: int
) -> None:
    response = http.post("/v1/jobs", content=whole, headers=HEADERS)
    problem(response, status, response.json()["code"])
    nothing_is_left(live)


def test_an_unknown_part_is_refused_by_name(http: httpx.Client) -> None:
    file = part("file", b"1", filename="a")
    unknown = http.post("/v1/jobs", content=file + part("reqest", b"{}") + END, headers=HEADERS)
    assert "unknown part 'reqest'. Known parts: `file`, `request`," in unknown.json()["detail"]
    twice = http.post("/v1/jobs", content=file + file + END, headers=HEADERS)
    assert "more than one part `file`" in twice.json()["detail"]


def test_a_form_without_a_boundary_is_refused(http: httpx.Client) -> None:
    response = http.post("/v1/jobs", content=b"x", headers={"Content-Type": "multipart/form-data"})
    problem(response, 400, "invalid_request")


@pytest.mark.parametrize(
    ("filename", "name"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\\\reels\\\\a.wav", "a.wav"),
        ("", "upload"),
        ("☃ a.wav", "☃ a.wav"),
    ],
)
def test_a_file_name_is_a_name_and_never_a_path(
    live: Live, http: httpx.Client, filename: str, name: str
) -> None:
    whole = part("file", b"RIFF", filename=filename) + END
    job = http.post("/v1/jobs", content=whole, headers=HEADERS).json()
    assert job["name"] == name
    assert [stored.key for stored in live.services.objects.list()] == [f"jobs/{job['id']}/source"]


def test_a_full_disk_is_named() -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        form = Form(full, BOUNDARY.encode(), 1000)
        with pytest.raises(DiskFull, match="No space is left"):
            form.write(part("file", b"RIFF", filename="a.wav"))


def test_only_old_remains_of_uploads_are_removed(tmp_path: Path) -> None:
    for name, age in (("upload-old", 90_000), ("upload-new", 60), ("notes", 90_000)):
        (tmp_path / name).write_bytes(b"")
        then = time.time() - age
        os.utime(tmp_path / name, (then, then))
    drop_remains(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["notes", "upload-new"]


def test_an_upload_never_stands_in_memory_whole(
    make_settings: Callable[..., Settings], recordings: Path, sqlite_url: str, redis_url: str
) -> None:
    """64 MiB come in while Python holds at most a few blocks of them at once."""
    size = 64 * 2**20
    running = start(make_settings(database_url=sqlite_url, redis_url=redis_url))
    try:

        def pieces() -> Iterator[bytes]:
            yield f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"\r\n\r\n'.encode()
            block = bytes(2**16)
            for _ in range(size // len(block)):
                yield block
            yield b"\r\n" + END

        tracemalloc.start()
        try:
            response = httpx.post(
                f"{running.live.url}/v1/jobs", content=pieces(), headers=HEADERS, timeout=120
            )
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert response.status_code == 202, response.text
        assert response.json()["source"]["size"] == size
        assert peak < size / 4
    finally:
        running.close()


def raw(live: Live, body: bytes, *, length: int, read: bool = True) -> bytes:
    """Send a request by hand and close; the answer's first bytes."""
    address = urlsplit(live.url)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {length}\r\n"
    head += f"Content-Type: {HEADERS['Content-Type']}\r\n\r\n"
    with socket.create_connection((str(address.hostname), address.port or 80), timeout=20) as connection:
        connection.sendall(head.encode() + body)
        if not read:
            folder = live.services.upload_folder
            until(lambda: folder.exists() and list(folder.iterdir()), "the server begins on it")
            return b""
        return connection.recv(4096)
