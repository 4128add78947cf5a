"""Every view passes axe without exceptions and fits the screen, on a desk and on a phone, light and dark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from ops.testbed.running_api import Live
from tests.page.test_page import done_job, sound

axe = pytest.importorskip("axe_playwright_python.sync_playwright")
SCREENS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]


@pytest.fixture(params=SCREENS, ids=lambda screen: f"{screen[0]}-{screen[1]}")
def screen(browser: Browser, live: Live, request: pytest.FixtureRequest) -> Iterator[Page]:
    width: int = request.param[0]
    scheme: Literal["light", "dark"] = request.param[1]
    context = browser.new_context(
        base_url=live.url, viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    yield context.new_page()
    context.close()


def test_every_view_is_accessible_and_fits(
    screen: Page, live: Live, recordings: Path, tmp_path: Path
) -> None:
    (recordings / "reel 2.wav").write_bytes(b"RIFF")
    job = done_job(live)
    with httpx.Client(base_url=live.url, timeout=60) as http:
        batch = http.post("/v1/batches", json={"source": f"{recordings.as_uri()}/"}).json()["id"]
        ids = [one["id"] for one in http.get("/v1/jobs", params={"batch": batch}).json()["items"]]
    worker = live.work()
    worker.fail(ids[0], "audio_empty", "There is nothing in it.")
    worker.finish(ids[1])
    tape = tmp_path / "tape.wav"
    tape.write_bytes(sound())
    views = ["", "search", "search?q=light", "review", "submit", "live", "system", "jobs", "batches"]
    views += ["sources", "glossaries", "costs", f"batches/{batch}", f"jobs/{job}"]
    found = []
    for view in views:
        screen.goto("/")
        screen.goto(f"/#/{view}")
        expect(screen.locator("h1")).to_be_visible()
        if view == "submit":
            screen.locator("#files").set_input_files([tape, Path(__file__)])
            expect(screen.get_by_text("1 new recording")).to_be_visible()
        screen.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        for violation in axe.Axe().run(screen).response["violations"]:
            nodes = [node["html"] for node in violation["nodes"][:3]]
            found.append(f"{view}: {violation['id']}: {nodes}")
        if screen.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{view}: wider than the screen")
    assert found == []
