"""A passage is closed, shown to somebody with the right, and opened again, on the page."""

from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live
from spool.client import Spool
from tests.page.test_speakers import TURNS, job_with_speakers

expect.set_options(timeout=60_000)


def test_a_passage_is_closed_shown_and_opened_again(page: Page, live: Live) -> None:
    # Given a recording with a passage that nobody may read before 2099
    job_id = job_with_speakers(live)
    page.goto(f"{live.url}/#/jobs/{job_id}")
    expect(page.locator(".segment p").first).to_contain_text(TURNS[0])
    page.get_by_role("button", name="Details", exact=True).click()
    page.get_by_text("Close something").click()
    page.get_by_label("From", exact=True).fill("0:00")
    page.get_by_label("To", exact=True).fill("1")
    page.get_by_label("Until").fill("2099-01-01")
    page.get_by_label("Reason").fill("Her wish")
    page.get_by_role("button", name="Close", exact=True).click()

    # Then the page says so in its place, and keeps the words from being corrected unseen
    expect(page.locator(".word.closed").first).to_contain_text("closed until")
    expect(page.locator(".closures li")).to_contain_text("“Her wish”")
    with Spool(live.url) as spool:
        assert "[closed]" in spool.transcript(job_id)
        assert spool.openings(job_id) == []

    # And shows the words where somebody asks for them, which is logged
    page.get_by_role("button", name="Show what is closed").click()
    expect(page.locator(".segment p").first).to_contain_text(TURNS[0])
    expect(page.locator(".word.closed")).not_to_have_count(0)
    with Spool(live.url) as spool:
        assert {one.way for one in spool.openings(job_id)} >= {"GET /v1/jobs/{job_id}/transcript"}

    # And all readers have them again once it is opened
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="for all readers").click()
    expect(page.locator(".word.closed")).to_have_count(0)
    expect(page.locator(".closures li")).to_have_count(0)
    with Spool(live.url) as spool:
        assert "[closed]" not in spool.transcript(job_id)
