"""The review on the page: by doubt, played and corrected in the transcript, marked as checked."""

from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live
from tests.api.auth.keys import post

expect.set_options(timeout=60_000)


def test_doubtful_passages_are_listed_opened_and_checked(page: Page, live: Live) -> None:
    files = {"file": ("reel.wav", b"RIFF" + bytes(40))}
    first = str(post(f"{live.url}/v1/jobs", files=files).json()["id"])
    live.work().finish(first, ("keep", "the", "light"))
    again = str(post(f"{live.url}/v1/jobs/{first}/rerun", json={}).json()["id"])
    live.work().finish(again, ("keep", "the", "lamp"))
    page.goto("/#/")
    page.get_by_role("link", name="Review doubtful passages").click()
    expect(page.locator(".hit")).to_have_count(1)
    expect(page.locator(".hit").first).to_contain_text("other words in another version 33 %")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_label("List").select_option("recordings")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".hit")).to_have_count(1)
    expect(page.locator(".hit")).to_contain_text("1 of 1 passages to check; doubt")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".hit").get_by_role("link", name="reel.wav").click()
    expect(page.locator(".hit")).to_contain_text("keep the lamp")
    page.get_by_role("link", name="All recordings").click()
    expect(page.get_by_text("Follow a name to its passages.")).to_be_visible()
    page.get_by_label("List").select_option("passages")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".hit")).to_have_count(1)
    page.get_by_label("Your name").fill("Bo")
    page.locator(".hit").first.get_by_role("button", name="Mark as checked").click()
    expect(page.locator(".hit").first).to_contain_text("checked by Bo")
    page.get_by_text("Error rate").click()
    expect(page.get_by_text("Listen to 1 of 1 passages.")).to_be_visible()
    page.get_by_role("button", name="Draw a sample").click()
    expect(page.get_by_text("1 of 1 checked. WER 0.0 %.")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_label("Show").select_option("checked")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".hit")).to_have_count(1)
    page.get_by_role("link", name="0:00").click()
    expect(page.get_by_role("group", name="Transcript.")).to_be_visible()
