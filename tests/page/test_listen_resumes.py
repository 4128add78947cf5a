"""The page's microphone and an API process that is killed: the session goes on, with every sample and each
final once. All of Spool is real; the microphone plays a recording."""

import wave
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from shutil import copy

import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright

import migrations
from ops.testbed.live.fleet import GOLDEN, HEADERS, TOKEN, LiveFleet, pcm, words_of
from ops.testbed.processes import REAL
from ops.testbed.waiting import DEADLINE, until
from spool.broker import EmbeddedRedis
from spool.domain import JobState
from tests.page.needs import BROWSER

PATIENCE_MS = DEADLINE * 1000
SETTLED = ".captions p:not(.unsettled)"
# What the page is given by the microphone, whatever becomes of it.
SPOKEN = """
window.spoken = [];
const Node = window.AudioWorkletNode;
window.AudioWorkletNode = class extends Node {
  constructor(...given) {
    super(...given);
    this.port.addEventListener("message", ({ data }) => window.spoken.push(...new Uint8Array(data.pcm)));
  }
};
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, redis_server: EmbeddedRedis) -> Iterator[LiveFleet]:
    home = tmp_path_factory.mktemp("listen")
    url = f"sqlite:///{home / 'spool.db'}"
    migrations.upgrade(url)
    models = {"stream": str(home / "model.nemo")}
    copy(GOLDEN / "model.nemo", models["stream"])
    with closing(LiveFleet(home, url, redis_server.url, models)) as fleet:
        fleet.serve()
        fleet.start(*REAL)
        yield fleet


@pytest.fixture
def page(fleet: LiveFleet, tmp_path: Path) -> Iterator[Page]:
    """A tab whose microphone hears a recording again and again."""
    talk = tmp_path / "talk.wav"
    with wave.open(str(talk), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(pcm(1) + bytes(32_000) + pcm(2) + bytes(32_000))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=BROWSER,
            args=[
                "--no-sandbox",
                "--mute-audio",
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
                f"--use-file-for-fake-audio-capture={talk}",
            ],
        )
        tab = chromium.new_page(base_url=fleet.url)
        tab.set_default_timeout(PATIENCE_MS)
        broken: list[str] = []
        tab.on("pageerror", lambda error: broken.append(str(error)))
        tab.add_init_script(SPOKEN)
        tab.goto(f"/#token={TOKEN}")
        tab.goto("/#/listen")
        yield tab
        chromium.close()
        assert broken == []


def finals(page: Page) -> list[str]:
    """The settled lines, without their times."""
    lines = page.locator(SETTLED)
    return [str(text) for text in lines.evaluate_all("all => all.map((line) => line.lastChild.textContent)")]


def recording(fleet: LiveFleet, job_id: str) -> bytes:
    with wave.open(BytesIO(fleet.get(f"/v1/jobs/{job_id}/audio").content)) as file:
        return file.readframes(file.getnframes())


def listen(page: Page) -> None:
    page.get_by_role("button", name="Start listening").click()
    expect(page.get_by_text("Listening. Speak.")).to_be_visible(timeout=PATIENCE_MS)


def stop(page: Page) -> str:
    """The job of the session, which ends well."""
    page.get_by_role("button", name="Stop").click()
    link = page.get_by_text("Done: ").get_by_role("link")
    expect(link).to_be_visible(timeout=PATIENCE_MS)
    return str(link.get_attribute("href")).rpartition("/")[2]


@pytest.mark.long  # end_to_end/test_live.py kills an API, and the test below takes it from the page
def test_a_session_outlives_the_death_of_its_api(page: Page, fleet: LiveFleet) -> None:
    port = str(httpx.URL(fleet.url).port)
    listen(page)
    until(lambda: finals(page), "a final")
    for _ in range(2):
        fleet.api.kill()
        fleet.api.wait(DEADLINE)
        expect(page.get_by_text("What you say meanwhile is kept.")).to_be_visible(timeout=PATIENCE_MS)
        before = len(finals(page))
        page.wait_for_timeout(2000)
        fleet.serve("--port", port)
        expect(page.get_by_text("Listening. Speak.")).to_be_visible(timeout=PATIENCE_MS)
        expect(page.locator(SETTLED)).not_to_have_count(before, timeout=PATIENCE_MS)
    job_id = stop(page)
    job = fleet.job(job_id)
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    assert " ".join(finals(page)).split() == words_of(fleet, job_id) != []
    # As text: a list of two million numbers takes longer than the test may.
    spoken = bytes.fromhex(
        page.evaluate("() => window.spoken.map((byte) => byte.toString(16).padStart(2, '0')).join('')")
    )
    heard = recording(fleet, job_id)
    assert heard == spoken[: len(heard)], "no sample lost, none doubled"
    assert len(spoken) - len(heard) < 16_000, "what was on its way when the button was pressed"


def test_what_was_said_while_nobody_answered_is_sent_when_somebody_does(page: Page, fleet: LiveFleet) -> None:
    port = str(httpx.URL(fleet.url).port)
    listen(page)
    until(lambda: finals(page), "a final")
    fleet.api.kill()
    fleet.api.wait(DEADLINE)
    expect(page.get_by_text("What you say meanwhile is kept.")).to_be_visible(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Stop").click()
    fleet.serve("--port", port)
    link = page.get_by_text("Done: ").get_by_role("link")
    expect(link).to_be_visible(timeout=PATIENCE_MS)
    job_id = str(link.get_attribute("href")).rpartition("/")[2]
    assert " ".join(finals(page)).split() == words_of(fleet, job_id) != []
    heard, spoken = recording(fleet, job_id), bytes(page.evaluate("window.spoken"))
    assert heard == spoken[: len(heard)]


def test_a_session_that_is_cancelled_says_so_and_is_not_resumed(page: Page, fleet: LiveFleet) -> None:
    listen(page)
    until(lambda: finals(page), "a final")
    job_id = newest(fleet)
    httpx.delete(f"{fleet.url}/v1/jobs/{job_id}", headers=HEADERS, timeout=60).raise_for_status()
    expect(page.get_by_role("status").filter(has_text="The session was cancelled").first).to_be_visible(
        timeout=PATIENCE_MS
    )
    expect(page.get_by_role("button", name="Start listening")).to_be_enabled()


def test_leaving_the_page_ends_the_session_at_once(page: Page, fleet: LiveFleet) -> None:
    listen(page)
    until(lambda: finals(page), "a final")
    job_id = newest(fleet)
    page.goto("/#/jobs")
    until(lambda: fleet.job(job_id).state is JobState.DONE, "the job's end, long before a minute", 40)


def newest(fleet: LiveFleet) -> str:
    return str(fleet.get("/v1/jobs?limit=1").json()["items"][0]["id"])
