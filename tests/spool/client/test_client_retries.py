"""When the client asks again, and when not: against a server that does as it is told."""

import json
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from api.openapi.document import example
from spool.client import Conflict, RateLimited, Retries, ServerFailed, Spool, Unreachable

pytestmark = pytest.mark.integration

HANGS_UP = 0
JOB = example("GET /v1/jobs/{job_id}", 200)
BATCH_RETRIED = {"retried": 1}
FAST = Retries(tries=4, greetings=4, first_s=0.001, longest_s=0.5)


@dataclass
class Script:
    """What the server answers, one after the other, and what it was asked."""

    url: str = ""
    answers: deque[tuple[int, str, dict[str, str]]] = field(default_factory=deque)
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def will(self, status: int, body: object = "", **headers: str) -> None:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append((status, body if isinstance(body, str) else json.dumps(body), told))


@pytest.fixture
def script() -> Iterator[Script]:
    told = Script()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            told.asked.append((self.command, self.headers.get("Idempotency-Key")))
            status, body, headers = told.answers.popleft()
            if status == HANGS_UP:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())
            self.close_connection = True

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the base class's names

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        told.url = f"http://127.0.0.1:{server.server_port}"
        yield told
        server.shutdown()
        thread.join(60)


def test_a_busy_server_is_asked_again_under_the_same_key(script: Script) -> None:
    script.will(429, retry_after="0")
    script.will(503, retry_after="Fri, 20 Nov 2026 10:00:00 GMT")
    script.will(HANGS_UP)
    script.will(202, JOB)
    with Spool(script.url, retries=FAST) as spool:
        assert spool.submit("s3://archive/reel.flac").id == JOB["id"]
    assert len(script.asked) == 4
    ((method, key),) = set(script.asked)
    assert method == "POST"
    assert key


def test_patience_ends(script: Script) -> None:
    for _ in range(4):
        script.will(429, {"code": "rate_limited", "detail": "Too many."}, retry_after="0")
    for _ in range(4):
        script.will(HANGS_UP)
    with Spool(script.url, retries=FAST) as spool:
        with pytest.raises(RateLimited, match="Too many"):
            spool.job("job_x")
        with pytest.raises(Unreachable):
            spool.job("job_x")
    assert not script.answers


def test_what_may_have_been_done_is_not_done_again(script: Script) -> None:
    # Nobody knows whether a cancellation that got no answer was one.
    script.will(HANGS_UP)
    script.will(503, {"code": "storage", "detail": "The database is busy."})
    # What was refused for being asked too often was not done.
    script.will(429, retry_after="0")
    script.will(200, JOB)
    # What was refused for good stays refused.
    script.will(409, {"code": "conflict", "detail": "It is done."})
    script.will(500, "<h1>proxy</h1>")
    with Spool(script.url, retries=FAST) as spool:
        with pytest.raises(Unreachable):
            spool.cancel("job_x")
        with pytest.raises(ServerFailed, match="busy"):
            spool.cancel("job_x")
        assert spool.cancel("job_x").id == JOB["id"]
        with pytest.raises(Conflict):
            spool.retry("job_x")
        with pytest.raises(ServerFailed, match="did not do it: internal server error"):
            spool.job("job_x")
    assert not script.answers


def test_a_download_that_breaks_off_is_no_whole_one(script: Script) -> None:
    script.will(503, retry_after="0")
    script.will(200, '{"a": 1}\n{"b"', content_length="5000")
    with Spool(script.url, retries=FAST) as spool, pytest.raises(Unreachable):
        list(spool.result_lines("bat_x"))
    assert len(script.asked) == 2


def test_a_server_that_was_never_there_is_given_up_sooner(script: Script) -> None:
    script.will(HANGS_UP)
    script.will(200, BATCH_RETRIED)
    script.will(HANGS_UP)
    script.will(200, BATCH_RETRIED)
    with Spool(script.url, retries=Retries(tries=2, greetings=1, first_s=0.001)) as spool:
        with pytest.raises(Unreachable):
            spool.retry_failed("bat_x")
        for _ in range(2):
            assert spool.retry_failed("bat_x").retried == BATCH_RETRIED["retried"]
    assert not script.answers


def test_an_answer_that_is_not_spools_is_told(script: Script) -> None:
    script.will(200, "<h1>Welcome</h1>")
    with Spool(script.url) as spool, pytest.raises(ServerFailed, match="did not answer like a Spool server"):
        spool.job("job_x")


def test_pauses_grow_and_have_an_end() -> None:
    policy = Retries(first_s=1.0, longest_s=10.0)
    for failures, least, most in ((1, 0.5, 1.0), (3, 2.0, 4.0), (9, 10.0, 10.0)):
        assert least <= policy.pause(failures, None) <= most
