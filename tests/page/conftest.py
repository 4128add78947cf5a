"""The page in a real browser, over the real API."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from ops.testbed.running_api import Live
from tests.api.conftest import _plain_logs, live, recordings, settings, start_api  # noqa: F401 - found by name here
from tests.page.needs import BROWSER, left_out

collect_ignore = left_out
PATIENCE_MS = 60_000


# Not for the session: Playwright runs an event loop in this thread, in which no other test could run its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert BROWSER is not None, "the page's tests need a Chromium (Debian: apt install chromium)"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=BROWSER,
            # Tests may run as root, where Chromium's own sandbox does not start.
            args=[
                "--no-sandbox",
                "--autoplay-policy=no-user-gesture-required",
                "--mute-audio",
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
            ],
        )
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser, live: Live) -> Iterator[Page]:  # noqa: F811
    """A tab at the page; at the end nothing may have gone wrong in it that a test did not ask for."""
    context = browser.new_context(base_url=live.url, viewport={"width": 1200, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    tab = context.new_page()
    broken: list[str] = []
    tab.on("pageerror", lambda error: broken.append(str(error)))
    yield tab
    context.close()
    assert broken == []
