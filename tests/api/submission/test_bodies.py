"""JSON bodies cost no more than a legitimate one: what would is refused before it is parsed or validated."""

import json
from typing import Any

import anyio
import httpx
import pytest

from api.problems import MAX_ERRORS, Problem
from api.submission.bodies import SMALL, SUBMISSION, BodyLimits, parse_json
from ops.testbed.running_api import problem
from spool.schemas import JobRequest

SOURCE = "s3://bucket/reel.wav"
FULL = SUBMISSION.size


def members(number: int, value: str = "1") -> bytes:
    return ("{" + ",".join(f'"k{at}":{value}' for at in range(number)) + "}").encode()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (members(500_000)[:FULL], 413, "more than 100000 values"),
        (b"[" + b"0," * (FULL // 2 - 2) + b"0]", 413, "more than 100000 values"),
        (b"[" * 200_000, 413, "more than 100000 values"),
        (members(2_000), 413, "more than 1000 keys"),
        (b"[" * 20_000 + b"]" * 20_000, 400, "not valid JSON"),
        (b"[" * 100 + b"]" * 100, 422, "nested more than 16 levels"),
        (b'{"source":"' + b"a" * (FULL - 13) + b'"}', 413, "more than 10000 characters"),
        (b'{"' + b"a" * (FULL - 6) + b'":1}', 413, "more than 10000 characters"),
        (b'{"source":"' + b"\\u00e9" * 20_000 + b'"}', 413, "more than 10000 characters"),
        (b'{"beam":' + b"9" * 4000 + b"}", 400, "not valid JSON"),
        (b'{"beam":0.' + b"9" * 4000 + b"}", 400, "not valid JSON"),
        (b'{"source":"s3://bucket/a\\u0000"}', 422, "zero byte"),
        (b'{"a\\u0000":1}', 422, "zero byte"),
        (b"\xff\xfe", 400, "not valid JSON"),
    ],
)
def test_a_body_that_would_cost_too_much_is_refused(body: bytes, status: int, words: str) -> None:
    with pytest.raises(Problem, match=words) as refused:
        parse_json(JobRequest, body, SUBMISSION)
    assert refused.value.status == status


def test_what_is_refused_by_counting_is_neither_parsed_nor_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object, **__: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(json, "loads", parse)
    with pytest.raises(Problem, match="more than 1000 values"):
        parse_json(JobRequest, b"[" + b"0," * 2000, SMALL)


def test_ten_thousand_long_phrases_of_any_script_are_a_legitimate_body() -> None:
    phrases = [f"{number:05}, " + "😀" * 193 for number in range(10_000)]
    request = {"source": SOURCE, "options": {"decoder": "beam", "boost": {"phrases": phrases}}}
    body = json.dumps(request, ensure_ascii=False).encode()
    assert len(body) > 7 * 2**20
    assert parse_json(JobRequest, body, SUBMISSION).options["boost"]["phrases"] == phrases


def test_a_thousand_errors_are_a_small_answer(http: httpx.Client) -> None:
    body = json.dumps({f"{'x' * 9000}{number}": number for number in range(800)})
    answer = http.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    listed = problem(answer, 422, "invalid_request")["errors"]
    assert isinstance(listed, list)
    assert len(listed) == MAX_ERRORS
    assert len(answer.content) < 64 * 1024


def test_large_bodies_take_turns(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    limiters: list[Any] = []
    run_sync = anyio.to_thread.run_sync

    async def watched(*arguments: Any, limiter: Any = None) -> Any:
        limiters.append(limiter)
        return await run_sync(*arguments, limiter=limiter)

    monkeypatch.setattr(anyio.to_thread, "run_sync", watched)
    for text in ("a", "a" * SMALL.size):
        http.post("/v1/jobs", json={"source": SOURCE, "x": text})
    ours = [limiter for limiter in limiters if limiter is not None and limiter.total_tokens == 1]
    assert len(ours) == 1


def test_each_route_states_its_limits(http: httpx.Client) -> None:
    large = {"url": "https://a.example/", "description": "x" * SMALL.size}
    problem(http.post("/v1/webhooks", json=large), 413, "too_large")
    assert BodyLimits(10).values < SUBMISSION.values


def test_a_form_is_bounded_too(http: httpx.Client) -> None:
    def post(content_type: str, body: bytes) -> httpx.Response:
        return http.post("/v1/jobs", content=body, headers={"Content-Type": content_type})

    for boundary in ("", "b" * 257, "b" * 10_000):
        detail = problem(post(f"multipart/form-data; boundary={boundary}", b"x"), 400, "invalid_request")
        assert "boundary" in str(detail["detail"])
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\nX: '
    problem(post("multipart/form-data; boundary=b", head + b"x" * 20_000), 400, "invalid_request")
    part = b'--b\r\nContent-Disposition: form-data; name="timestamp_granularities[]"\r\n\r\nword\r\n'
    answer = http.post(
        "/v1/audio/transcriptions",
        content=part * 200,
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    )
    problem(answer, 413, "too_large")
