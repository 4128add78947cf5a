"""A passage is closed, shown to somebody with the right, and opened again, on the page."""

from pathlib import Path

from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live
from spool.client import Spool
from tests.page.test_page import sound
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


def test_suggestions_are_closed_or_said_to_be_not_private(page: Page, live: Live, tmp_path: Path) -> None:
    path = tmp_path / "reel.wav"
    path.write_bytes(sound())
    with Spool(live.url) as spool:
        job_id = spool.submit(path, options={"model": "demo-tdt"}).id
    live.work().finish(job_id, ("then", "Ada", "Lund", "sailed", "past", "Big", "Ben"))
    page.goto(f"{live.url}/#/jobs/{job_id}")
    page.get_by_role("button", name="Details", exact=True).click()
    page.get_by_text("Names, phone numbers, addresses").click()
    rows = page.locator(".suggestions li")
    expect(rows.locator("strong")).to_have_text(["Ada Lund", "Big Ben"])
    page.get_by_role("button", name="“Big Ben” is not private").click()
    expect(rows.locator("strong")).to_have_text(["Ada Lund"])
    page.get_by_role("button", name="Close “Ada Lund”").click()
    expect(page.locator(".word.closed")).to_have_text("[closed for good]")
    expect(page.get_by_text("Nothing is suggested.")).to_be_visible()
    with Spool(live.url) as spool:
        assert spool.transcript(job_id) == "then [closed] sailed past Big Ben\n"
        assert [one.text for one in spool.closure_suggestions(job_id)] == []


def test_the_review_shows_closed_passages_where_somebody_asks(page: Page, live: Live, tmp_path: Path) -> None:
    path = tmp_path / "reel.wav"
    path.write_bytes(sound())
    with Spool(live.url) as spool:
        job_id = spool.submit(path, options={"model": "demo-tdt"}).id
        live.work().finish(job_id)
        spool.close_to_readers(job_id)
    page.goto(f"{live.url}/#/review?job={job_id}")
    expect(page.get_by_text("Nothing to review.")).to_be_visible()
    page.get_by_text("Choose what to review").click()
    page.get_by_label("Closed passages").select_option("true")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("Chosen: closed passages too")).to_be_visible()
    expect(page.locator(".passage .text").first).to_have_text("keep the light")
    with Spool(live.url) as spool:
        assert "GET /v1/review" in {one.way for one in spool.openings(job_id)}
