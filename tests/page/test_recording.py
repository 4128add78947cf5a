"""A recording on the page: the text first, a panel that closes, long recordings, paper."""

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from ops.bench.page import store_long
from ops.testbed.running_api import Live
from ops.testbed.waiting import until
from spool.client import Spool
from tests.page.test_page import done_job, sound
from tests.page.test_speakers import TURNS, job_with_speakers

expect.set_options(timeout=60_000)
WORDS = 12_000


def test_the_text_begins_in_the_first_third_and_the_tab_has_its_name(page: Page, live: Live) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"/#/jobs/{job_with_speakers(live)}")
    first = page.locator(".segment").first
    expect(first).to_contain_text(TURNS[0])
    expect(page.locator(".wave title")).to_be_attached()
    box = first.bounding_box()
    assert box is not None
    assert box["y"] < 300
    expect(page).to_have_title("harbour.wav · Spool")
    expect(page.get_by_text("Versions")).to_be_hidden()


def test_a_recording_is_asked_for_before_the_page_is_there_and_again_later(page: Page, live: Live) -> None:
    job_id = job_with_speakers(live)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(live.url)))
    page.goto(f"/#/jobs/{job_id}")
    expect(page.locator(".segment").first).to_contain_text(TURNS[0])
    transcript = f"/v1/jobs/{job_id}/transcript"
    assert asked.count(transcript) == 1
    assert asked.index(transcript) < asked.index(f"/v1/jobs/{job_id}/versions")
    page.goto("/#/")
    expect(page.get_by_role("heading", name="Latest recordings")).to_be_visible()
    page.goto(f"/#/jobs/{job_id}")
    expect(page.locator(".segment").first).to_contain_text(TURNS[0])
    assert asked.count(transcript) == 2, "what it says now, not what it said at first"


def test_the_panel_opens_and_closes_by_key_and_the_words_stay(page: Page, live: Live) -> None:
    page.goto(f"/#/jobs/{job_with_speakers(live)}")
    opener = page.get_by_role("button", name="Details", exact=True)
    opener.press("Enter")
    panel = page.get_by_role("complementary", name="Details of the recording")
    expect(panel.get_by_role("heading", name="Corrections")).to_be_visible()
    expect(page.locator(".segment").first).to_contain_text(TURNS[0])
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(opener).to_be_focused()


def test_the_sound_is_moved_in_by_pointer_and_keys(page: Page, live: Live) -> None:
    page.goto(f"/#/jobs/{done_job(live)}")
    slider = page.get_by_role("slider", name="Position in the recording")
    expect(page.locator(".wave title")).to_have_text("How loud the recording is")
    box = slider.bounding_box()
    assert box is not None
    slider.click(position={"x": box["width"] / 2, "y": 5})
    expect(slider).to_have_attribute("aria-valuetext", "0:01")
    slider.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "0:00")
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()


def test_all_words_of_a_long_recording_are_found_linked_and_printed(page: Page, live: Live) -> None:
    job_id = store_long(live, WORDS)
    page.goto(f"/#/jobs/{job_id}?t=3600")
    here = page.locator(".word.here")
    expect(here).to_be_in_viewport()
    at = here.get_attribute("data-word")
    assert at is not None
    assert abs(int(at) / 2.8 - 3600) < 1
    expect(page.locator(".word[data-word]")).to_have_count(WORDS)
    last = page.locator(".segment").last
    number = page.locator(".segment").count() * 2 // 3
    text = " ".join(page.locator(".segment").nth(number).locator(".word").all_text_contents()[:12])
    assert page.evaluate("text => window.find(text, false, false, true)", text), "the browser's own search"
    found = page.evaluate_handle("getSelection().anchorNode.parentElement.closest('.segment')")
    assert page.locator(".segment").nth(number).evaluate("(one, found) => one === found", found)

    def is_at_the_end() -> bool:
        # What comes into view gets its height only then, which can push the passage out again.
        last.evaluate("one => one.scrollIntoView({ block: 'center' })")
        page.wait_for_timeout(200)
        return bool(last.evaluate("one => one.getBoundingClientRect().top < innerHeight"))

    until(is_at_the_end, "the last passage in view")
    page.emulate_media(media="print")
    expect(page.locator(".player")).to_be_hidden()
    expect(page.locator(".acts")).to_be_hidden()
    assert (
        page.locator(".group").first.evaluate("one => getComputedStyle(one).contentVisibility") == "visible"
    )


def test_the_editor_opens_where_the_reader_is_with_its_buttons_in_view(page: Page, live: Live) -> None:
    page.goto(f"/#/jobs/{store_long(live, WORDS)}?t=3600")
    expect(page.locator(".word.here")).to_be_in_viewport()
    page.keyboard.press("e")
    editor = page.get_by_label("Text of this passage")
    expect(editor).to_be_focused()
    expect(editor).to_be_in_viewport()
    expect(page.get_by_role("button", name="Save")).to_be_in_viewport(ratio=1)
    assert editor.evaluate("one => one.selectionStart") > 0, "the caret is at the reader's word"


def test_a_phone_shows_all_and_any_word_is_three_taps_away(page: Page, live: Live) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    job_id = job_with_speakers(live)
    page.goto(f"/#/jobs/{job_id}")
    expect(page.locator(".segment")).to_have_count(len(TURNS))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Find in this text").click()
    page.get_by_role("searchbox", name="Find in this text").fill("horn")
    page.get_by_role("button", name="Next match").click()
    expect(page.locator(".word.here")).to_have_text(["horn"])
    page.get_by_role("button", name="Details", exact=True).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_what_texts_leave_out_is_struck_through_where_it_was_said(
    page: Page, live: Live, tmp_path: Path
) -> None:
    path = tmp_path / "reel.wav"
    path.write_bytes(sound())
    with Spool(live.url) as spool:
        jobs = [
            spool.submit(path, options={"model": "demo-tdt", "language": "en", "verbatim": "omit"}),
            spool.submit(path, options={"model": "demo-tdt", "language": "en", "verbatim": "mark"}),
        ]
    for job in jobs:
        live.work().finish(job.id, ("um", "the", "the", "lamp", "is", "lit"))
    page.goto(f"/#/jobs/{jobs[0].id}")
    expect(page.locator(".word.omitted")).to_have_text(["um", "the"])
    expect(page.locator(".tools")).to_contain_text("2 fillers and repetitions, left out of texts")
    page.locator(".word.omitted").first.hover()
    expect(page.locator(".word.omitted").first).to_have_attribute("title", re.compile("a filler, left out"))
    page.goto(f"/#/jobs/{jobs[1].id}")
    expect(page.locator(".word.disfluent")).to_have_text(["um", "the"])
    with Spool(live.url) as spool:
        assert [spool.transcript(job.id) for job in jobs] == ["the lamp is lit\n", "um the the lamp is lit\n"]
        assert [len(spool.words(job.id).words) for job in jobs] == [6, 6]
