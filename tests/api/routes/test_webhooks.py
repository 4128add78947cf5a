"""Webhooks from the API to a real receiver: signed, tried again, replayed, and never to a place inside."""

import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update
from structlog.testing import capture_logs

from ops.testbed.running_api import Live, file_job, problem
from ops.testbed.waiting import until
from spool.settings import Settings
from spool.tables import webhooks
from tests.api.auth.keys import post
from tests.api.delivery.receiver import Receiver

DELIVERED, FAILED = "delivered", "failed"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and waits of a moment, where people have seconds and hours."""
    monkeypatch.setattr("api.delivery.event_broker.IDLE_S", 0.02)
    monkeypatch.setattr("api.delivery.webhook_dispatcher._LOOK_S", 0.02)
    monkeypatch.setattr("spool.domain.webhooks.RETRY_SECONDS", (0.0,) * 7)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_private_hosts": ("localhost",)})


def made(live: Live, url: str, **asked: Any) -> dict[str, Any]:
    answer = post(f"{live.url}/v1/webhooks", json={"url": url, **asked})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def submitted(live: Live, recordings: Path, **request: Any) -> str:
    return str(post(f"{live.url}/v1/jobs", json=file_job(recordings, **request)).json()["id"])


def deliveries(http: httpx.Client, webhook: dict[str, Any]) -> list[dict[str, Any]]:
    return list(http.get(f"/v1/webhooks/{webhook['id']}/deliveries").json()["items"])


def ended(http: httpx.Client, webhook: dict[str, Any], least: int = 1) -> list[dict[str, Any]]:
    """The deliveries of a webhook, once so many have ended."""
    until(lambda: sum(one["ended_at"] is not None for one in deliveries(http, webhook)) >= least)
    return deliveries(http, webhook)


def test_what_happens_arrives_signed_and_again_where_it_did_not(
    live: Live, http: httpx.Client, receiver: Receiver, recordings: Path
) -> None:
    receiver.answers["/hook"] = [500, 503, 204]
    with capture_logs() as logs:
        hook = made(live, receiver.url("/hook"), events=["job.failed"], description="The catalogue")
        job = submitted(live, recordings, name="reel 7")
        live.work().fail(job, "audio_unreadable", "It is a text file.")
        first, *_, last = receiver.at("/hook", 3)
    assert [line["webhook"] for line in logs if line["event"] == "a webhook failed"] == [hook["id"]] * 2
    assert not [line for line in logs if hook["secret"] in str(line) or receiver.url("/hook") in str(line)]
    assert hook["secret"].startswith("whsec_")
    assert "secret" not in http.get(f"/v1/webhooks/{hook['id']}").json(), "it is shown once"
    told = last.verified(hook["secret"])
    assert told["type"] == "job.failed"
    assert (told["data"]["job"], told["data"]["name"]) == (job, "reel 7")
    assert told["data"]["error"] == {"code": "audio_unreadable", "message": "It is a text file."}
    assert (first.id, first.body) == (last.id, last.body), "another try is the same message"
    assert last.headers["content-type"] == "application/json"
    assert last.headers["host"] == f"localhost:{receiver.port}"
    (sent,) = ended(http, hook)
    assert (sent["id"], sent["state"], sent["body"]) == (last.id, DELIVERED, told)
    assert [one["status"] for one in sent["tries"]] == [500, 503, 204]

    # Replayed, it comes under the same id; rotated, under both secrets
    new = http.post(f"/v1/webhooks/{hook['id']}/rotate").json()
    assert new["secret"] != hook["secret"]
    again = http.post(f"/v1/webhooks/{hook['id']}/deliveries/{sent['id']}/replay")
    assert (again.status_code, again.json()["state"]) == (202, "pending")
    replayed = receiver.at("/hook", 4)[-1]
    assert replayed.id == sent["id"]
    assert replayed.verified(hook["secret"]) == replayed.verified(new["secret"]) == told

    test = http.post(f"/v1/webhooks/{hook['id']}/test")
    assert test.status_code == 202
    assert receiver.at("/hook", 5)[-1].verified(new["secret"])["type"] == "webhook.test"
    ended(http, hook, 2)
    shown = http.get("/v1/webhooks").json()["items"]
    assert [(one["id"], one["state"], one["delivered"]) for one in shown] == [(hook["id"], "enabled", 3)]

    # Removed, it is as if it had never been
    assert http.delete(f"/v1/webhooks/{hook['id']}").status_code == 204
    problem(http.get(f"/v1/webhooks/{hook['id']}"), 404, "not_found")
    problem(http.post(f"/v1/webhooks/{hook['id']}/deliveries/{sent['id']}/replay"), 404, "not_found")


def test_a_batch_of_ones_own_is_told_alone(
    live: Live, http: httpx.Client, receiver: Receiver, recordings: Path
) -> None:
    asked = {"source": f"{recordings.as_uri()}/"}
    batch, other = (http.post("/v1/batches", json=asked).json()["id"] for _ in range(2))
    hook = made(live, receiver.url("/hook"), batch=batch)
    for one in (other, batch):
        http.delete(f"/v1/batches/{one}")
    messages = [message.verified(hook["secret"]) for message in receiver.at("/hook", 2)]
    assert sorted(one["type"] for one in messages) == ["batch.done", "job.cancelled"]
    assert {one["data"]["batch"] for one in messages} == {batch}


def test_no_redirect_and_no_name_leads_inside(
    live: Live, http: httpx.Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = socket.getaddrinfo

    def rebound(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        # A public name whose owner makes it mean this machine
        return looked_up("127.0.0.1" if host == "hooks.example.org" else host, port, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    receiver.answers = {"/away": [302], "/gone": [410]}
    away, gone, endless = (made(live, receiver.url(path)) for path in ("/away", "/gone", "/endless"))
    inside = made(live, f"https://hooks.example.org:{receiver.port}/inside")
    for hook in (away, gone, endless, inside):
        assert http.post(f"/v1/webhooks/{hook['id']}/test").status_code == 202
    (refused,) = ended(http, inside)
    assert {one["status"] for one in refused["tries"]} == {None}
    assert "hooks.example.org is not a public host" in refused["tries"][0]["error"]
    (redirected,) = ended(http, away)
    assert redirected["state"] == FAILED
    assert (redirected["tries"][0]["status"], redirected["tries"][0]["error"]) == (
        302,
        "redirects are not followed",
    )
    assert len(redirected["tries"]) == 8, "the first and one after each wait"
    assert [one["state"] for one in ended(http, endless)] == [DELIVERED], "its body is nobody's business"
    assert not [message for message in receiver.messages if message.path == "/inside"]

    # Who wants no more is asked no more, until somebody enables it
    (once,) = ended(http, gone)
    assert (once["state"], len(once["tries"])) == (FAILED, 1)
    shown = http.get(f"/v1/webhooks/{gone['id']}").json()
    assert (shown["state"], shown["reason"]) == ("disabled", "The receiver answered 410 (Gone).")
    problem(http.post(f"/v1/webhooks/{gone['id']}/test"), 409, "conflict")
    assert http.post(f"/v1/webhooks/{gone['id']}/enable").json()["state"] == "enabled"


def test_an_address_inside_or_without_tls_is_refused_at_once(live: Live, http: httpx.Client) -> None:
    for url in (
        "https://127.0.0.1/",
        "https://0x7f000001/",
        "https://[::1]/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest",
        "http://example.org/",
        "http://example.org:443/",
        "ftp://example.org/",
        "file:///etc/passwd",
    ):
        answer = http.post("/v1/webhooks", json={"url": url})
        assert answer.status_code in (403, 422), url
    for asked in (
        {"url": "https://user:word@example.org/"},
        {"url": "https://"},
        {"url": "https://exa mple.org/"},
        {"url": "https://example.org:99999/"},
        {"url": "https://xn--/"},
        {"url": "https://a..example.org/"},
        {"url": f"https://{'a' * 64}.org/"},
        {"url": "https://ex%41mple.org/"},
        {"url": "https://example.org/\n"},
        {"url": "https://example.org/", "events": ["job.eaten"]},
        {"url": "https://example.org/", "events": []},
        {"url": "https://example.org/", "more": 1},
        {},
    ):
        problem(http.post("/v1/webhooks", json=asked), 422, "invalid_request")
    problem(http.post("/v1/webhooks", content=b"{"), 415, "unsupported_media_type")
    nowhere = {"url": "https://example.org/", "batch": "bat_01JD5T9Q4X8K2M6N0P3R7S1V5W"}
    problem(http.post("/v1/webhooks", json=nowhere), 404, "not_found")
    assert http.get("/v1/webhooks").json() == {"items": []}


def test_whatever_an_attempt_raises_is_recorded_and_ends_in_a_disabled_endpoint(
    settings: Settings, start_api: Callable[[Settings], Live], receiver: Receiver
) -> None:
    live = start_api(settings.model_copy(update={"webhook_disable_days": 1e-9}))
    receiver.answers["/nowhere"] = [302]  # to https://xn--/, where httpx raises an IDNAError
    away, impossible = made(live, receiver.url("/nowhere")), made(live, receiver.url("/hook"))
    with live.services.database.begin() as tx:  # as one stored before such hosts were refused
        tx.execute(update(webhooks).where(webhooks.c.id == impossible["id"]).values(url="https://xn--/"))
    with capture_logs() as logs, httpx.Client(base_url=live.url, timeout=60, verify=False) as http:
        for hook in (away, impossible):
            http.post(f"/v1/webhooks/{hook['id']}/test")
            until(
                partial(lambda one: http.get(f"/v1/webhooks/{one}").json()["state"] == "disabled", hook["id"])
            )
            (tried,) = deliveries(http, hook)
            assert tried["tries"]
            assert {one["error"] for one in tried["tries"]} == {"cannot be sent (IDNAError)"}
    failed = {line["webhook"] for line in logs if line["event"] == "a webhook could not be sent"}
    assert failed == {away["id"], impossible["id"]}


def test_a_slow_receiver_holds_up_nobody_else(
    live: Live, http: httpx.Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.delivery.webhook_dispatcher.SLOTS", 12)
    slow, quick = made(live, receiver.url("/slow")), made(live, receiver.url("/quick"))
    for _ in range(12):
        http.post(f"/v1/webhooks/{slow['id']}/test")
    receiver.at("/slow", 4)
    http.post(f"/v1/webhooks/{quick['id']}/test")
    assert [one["state"] for one in ended(http, quick)] == [DELIVERED]
    assert len(receiver.at("/slow")) == 4, "it has its places, and no more"
    receiver.held.set()
    assert {one["state"] for one in ended(http, slow, 12)} == {DELIVERED}


def test_two_processes_send_each_message_once(
    settings: Settings, start_api: Callable[[Settings], Live], receiver: Receiver, recordings: Path
) -> None:
    apis = [start_api(settings), start_api(settings)]
    hook = made(apis[0], receiver.url("/hook"), events=["job.queued"])
    jobs = {submitted(apis[number % 2], recordings) for number in range(8)}
    with httpx.Client(base_url=apis[1].url, timeout=60, verify=False) as http:
        assert {one["state"] for one in ended(http, hook, 8)} == {DELIVERED}
    messages = receiver.at("/hook")
    assert sorted(message.verified(hook["secret"])["data"]["job"] for message in messages) == sorted(jobs)


def test_an_endpoint_that_fails_for_days_is_disabled(
    settings: Settings, start_api: Callable[[Settings], Live], receiver: Receiver
) -> None:
    live = start_api(settings.model_copy(update={"webhook_disable_days": 1e-9}))
    receiver.answers["/hook"] = [500]
    hook = made(live, receiver.url("/hook"))
    with httpx.Client(base_url=live.url, timeout=60, verify=False) as http:
        http.post(f"/v1/webhooks/{hook['id']}/test")
        until(lambda: http.get(f"/v1/webhooks/{hook['id']}").json()["state"] == "disabled")
        told = http.get(f"/v1/webhooks/{hook['id']}").json()["reason"]
    assert told.startswith("Every delivery has failed since ")
    assert told.endswith("last: status 500.")
