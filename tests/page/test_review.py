"""The review on the page: by doubt, played, accepted and corrected there, by keys alone."""

import io
import re
from pathlib import Path

import soundfile
from playwright.sync_api import FileChooser, Page, Route, expect

from ops.testbed.running_api import Live
from spool.client import Spool
from tests.api.auth.keys import post

expect.set_options(timeout=60_000)


def doubtful_jobs(live: Live) -> str:
    """Two versions of one recording, the later with another word; its id."""
    files = {"file": ("reel.wav", wave())}
    first = str(post(f"{live.url}/v1/jobs", files=files).json()["id"])
    live.work().finish(first, ("keep", "the", "light"))
    again = str(post(f"{live.url}/v1/jobs/{first}/rerun", json={}).json()["id"])
    live.work().finish(again, ("keep", "the", "lamp"))
    return again


def play(page: Page) -> None:
    """Presses Space and waits until sound began: a passage of two seconds may be over before a look."""
    mark = "event => { event.target.dataset.played = 'yes'; }"
    page.evaluate(f"document.querySelector('audio').addEventListener('playing', {mark})")
    page.keyboard.press("Space")
    expect(page.locator("audio")).to_have_attribute("data-played", "yes")


def test_doubtful_passages_are_listed_opened_and_checked(page: Page, live: Live) -> None:
    doubtful_jobs(live)
    page.goto("/#/review")
    current = page.locator(".passage.current")
    expect(page.locator(".passage")).to_have_count(1)
    expect(current).to_contain_text("other words in another version")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_text("Choose what to review").click()
    page.get_by_label("List").select_option("recordings")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".hit")).to_have_count(1)
    expect(page.locator(".hit")).to_contain_text("1 of 1 passages to check; doubt")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".hit").get_by_role("link", name="reel.wav").click()
    expect(current).to_contain_text("keep the lamp")
    page.get_by_role("link", name="All recordings").click()
    expect(page.get_by_text("Follow a name to its passages.")).to_be_visible()
    page.get_by_label("List").select_option("passages")
    page.get_by_role("button", name="Filter").click()
    page.get_by_label("Decisions are signed by").fill("Bo")
    current.get_by_role("button", name="Accept").click()
    expect(page.locator(".passage")).to_contain_text("checked by Bo")
    expect(page.get_by_text("Listen to 1 of 1 passages.")).to_be_visible()
    page.get_by_role("button", name="Draw a sample").click()
    expect(page.get_by_text("1 of 1 checked.")).to_be_visible()
    expect(page.get_by_text("0.0 % of the words are wrong")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto("/#/review?checked=true")
    expect(page.locator(".passage")).to_have_count(1)
    page.get_by_role("link", name="0:00").click()
    expect(page.get_by_role("group", name="Transcript.")).to_be_visible()


def test_a_filter_of_the_review_keeps_the_recording_and_a_link_closes_a_dialog(
    page: Page, live: Live
) -> None:
    job_id = doubtful_jobs(live)
    page.goto(f"/#/review?job={job_id}")
    expect(page.locator(".passage")).to_have_count(1)
    page.get_by_text("Choose what to review").click()
    page.get_by_label("Reason").select_option("versions")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("Chosen: other words in another version")).to_be_visible()
    assert page.url.endswith(f"#/review?reason=versions&job={job_id}")
    expect(page.locator(".passage")).to_have_count(1)
    page.get_by_label("List").select_option("recordings")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".hit")).to_have_count(1)
    assert "job=" not in page.url
    page.go_back()
    expect(page.locator(".passage.current")).to_be_visible()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys of the review")
    expect(keys).to_be_visible()
    page.go_back()
    expect(keys).to_have_count(0)
    assert page.url.endswith(f"#/review?job={job_id}")


def test_what_nobody_said_is_struck_out_and_a_reason_to_review(page: Page, live: Live) -> None:
    job_id = str(post(f"{live.url}/v1/jobs", files={"file": ("reel.wav", wave())}).json()["id"])
    live.work().finish(job_id, ("keep", "the", "light", "thanks", "for", "watching"), unsaid=3)
    page.goto(f"/#/jobs/{job_id}")
    expect(page.locator(".word.unsaid")).to_have_text(["thanks", "for", "watching"])
    page.get_by_role("button", name="1 sentence nobody said").click()
    expect(page.locator(".word.here")).to_have_text(["thanks"])
    page.locator(".transcript").focus()
    page.keyboard.press("Home")
    page.keyboard.press("w")
    expect(page.locator(".word.here")).to_have_text(["thanks"])
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto("/#/review")
    expect(page.locator(".passage.current")).to_contain_text("nobody said this")


def test_a_passage_is_played_corrected_and_exported_by_keys_alone(page: Page, live: Live) -> None:
    job_id = doubtful_jobs(live)
    page.goto("/#/review")
    expect(page.locator(".passage.current .word")).to_have_count(3)
    play(page)
    page.keyboard.press("Space")
    expect(page.locator("audio")).to_have_js_property("paused", True)
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys of the review")
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    page.keyboard.press("e")
    expect(page.get_by_label("Text of this passage")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.type("s")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Corrected.")).to_be_visible()
    with Spool(live.url) as spool:
        assert spool.transcript(job_id).strip() == "keep the lamps"
        page.keyboard.press("u")
        expect(page.get_by_text("Undone.")).to_be_visible()
        assert spool.transcript(job_id).strip() == "keep the lamp"
        page.keyboard.press("Enter")
        expect(page.locator(".passage .kept")).to_be_visible()
        page.keyboard.press("u")
        expect(page.locator(".passage .kept")).to_have_count(0)
        assert [one.checked_by for one in spool.review(job=job_id)] == [None]
    page.keyboard.press("o")
    page.wait_for_url(f"**/#/jobs/{job_id}?t=0")
    expect(page.locator(".word.here")).to_have_text(["keep"])
    page.keyboard.press("e")
    expect(page.get_by_label("Text of this passage")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.type("light")
    page.keyboard.press("Enter")
    expect(page.locator(".word.corrected")).to_have_text(["lamplight"])
    expect(page.locator(".transcript")).to_be_focused()
    press_until(page, "Shift+Tab", ".menu summary")
    page.keyboard.press("Enter")
    press_until(page, "Tab", "[data-form=srt]")
    with page.expect_download() as begun:
        page.keyboard.press("Enter")
    assert "keep the lamplight" in begun.value.path().read_text()


def test_a_recording_is_submitted_reviewed_corrected_and_exported_without_the_mouse(
    page: Page, live: Live, tmp_path: Path
) -> None:
    reel = tmp_path / "reel.wav"
    reel.write_bytes(wave())
    # From now on: a busy Chromium that learns of it with Enter opens a dialog that nobody can close.
    page.on("filechooser", lambda _: None)
    page.goto("/")
    expect(page.get_by_role("link", name="Submit", exact=True)).to_be_visible()
    follow(page, "Submit")
    press_until(page, "Tab", "button", text="Choose files")
    choose_by_enter(page).set_files(reel)
    expect(page.get_by_role("button", name=re.compile("^Submit 1 "))).to_be_enabled()
    press_until(page, "Tab", "button", text="Submit 1 ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="reel.wav")).to_be_visible()
    job_id = page.url.rpartition("/")[2]
    live.work().finish(job_id, ("keep", "the", "lamp"))

    follow(page, "Review")
    expect(page.locator(".passage.current")).to_contain_text("keep the lamp")
    play(page)
    page.keyboard.press("e")
    expect(page.get_by_label("Text of this passage")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.type("s")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Corrected.")).to_be_visible()

    page.keyboard.press("o")
    page.wait_for_url(f"**/#/jobs/{job_id}?t=0")
    expect(page.locator(".word.corrected")).to_have_text(["lamps"])
    press_until(page, "Tab", ".menu summary")
    page.keyboard.press("Enter")
    press_until(page, "Tab", "[data-form=txt]")
    with page.expect_download() as begun:
        page.keyboard.press("Enter")
    assert begun.value.path().read_text() == "keep the lamps\n"


def test_an_answer_that_comes_after_a_recording_was_left_takes_no_keys_from_the_review(
    page: Page, live: Live
) -> None:
    job_id = str(post(f"{live.url}/v1/jobs", files={"file": ("reel.wav", wave())}).json()["id"])
    page.goto(f"/#/jobs/{job_id}")
    expect(page.get_by_role("heading", name="reel.wav")).to_be_visible()
    held: list[Route] = []
    page.route(f"**/v1/jobs/{job_id}", lambda route: held.append(route))
    with page.expect_request(f"**/v1/jobs/{job_id}"):
        live.work().finish(job_id, ("keep", "the", "lamp"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("location.hash = '#/review'")
    expect(page.locator(".passage.current")).to_contain_text("keep the lamp")
    with page.expect_response(f"**/v1/jobs/{job_id}"):
        for late in tuple(held):
            late.continue_()
    page.wait_for_timeout(500)
    play(page)
    assert not [url for url in asked if url.endswith("/transcript")]


def follow(page: Page, link: str) -> None:
    """Follow a link of the navigation."""
    press_until(page, "Tab", "header a, nav a", text=link)
    page.keyboard.press("Enter")


def choose_by_enter(page: Page) -> FileChooser:
    with page.expect_file_chooser() as opened:
        page.keyboard.press("Enter")
    return opened.value


def press_until(page: Page, key: str, selector: str, text: str = "") -> None:
    """Press the key until what matches, and begins with this text, has the focus."""
    focused = """([selector, text]) => document.activeElement.matches(selector)
        && document.activeElement.textContent.trim().startsWith(text)"""
    for _ in range(60):
        page.keyboard.press(key)
        if page.evaluate(focused, [selector, text]):
            return
    raise AssertionError(f"{selector} is not reached by {key}")


def wave() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, [0.0, 0.25] * 12_000, 8000, format="WAV", subtype="PCM_16")
    return file.getvalue()
