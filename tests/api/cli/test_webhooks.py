"""`spool webhooks`, in this process, against the real server and a real receiver."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live
from spool.settings import Settings
from tests.api.delivery.receiver import Receiver


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_private_hosts": ("localhost",)})


@pytest.fixture
def spool(
    live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))
    monkeypatch.setenv("COLUMNS", "220")
    monkeypatch.setattr("spool.domain.webhooks.RETRY_SECONDS", ())
    monkeypatch.setattr("api.cli.webhooks._POLL_S", 0.02)

    def run(*arguments: str, code: int = 0) -> str:
        done = invoke(main, ["webhooks", *arguments])
        assert done.exit_code == code, done
        return done.stdout

    return run


def test_a_webhook_from_first_to_last(spool: Any) -> None:
    receiver = Receiver({"/hook": [200, 500, 200]})
    try:
        assert "no webhooks" in spool("list")
        secret = spool("add", receiver.url("/hook"), "--event", "batch.done").strip()
        (hook,) = json.loads(spool("list", "--json"))
        assert hook["events"] == ["batch.done"]
        assert "answered 200" in spool("test", hook["id"])
        assert receiver.at("/hook")[0].verified(secret)["data"]["webhook"] == hook["id"]
        assert "answered 500" in spool("test", hook["id"], code=1)
        listed = spool("deliveries", hook["id"], "--state", "failed")
        assert "answered 500" in listed
        assert "webhook.test" in listed
        spool("replay", hook["id"], code=2)
        assert "will be sent again" in spool("replay", hook["id"], "--failed")
        new = json.loads(spool("rotate", hook["id"], "--json"))["secret"]
        again = receiver.at("/hook", 3)[-1]
        assert again.id == receiver.at("/hook")[1].id
        assert new != secret
        assert " enabled" in spool("enable", hook["id"])
        assert " removed" in spool("remove", hook["id"])
        assert "no webhooks" in spool("list")
        spool("remove", hook["id"], code=4)
    finally:
        receiver.close()
