"""Corrections on the page: in place, with a history, and with somebody else at the same words."""

from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live
from spool.client import Spool
from tests.page.test_speakers import TURNS, job_with_speakers

expect.set_options(timeout=60_000)


def passage(page: Page, live: Live, number: int) -> str:
    """Opens a job, and the editor of one of its passages; the job's id."""
    job_id = job_with_speakers(live)
    page.goto(f"{live.url}/#/jobs/{job_id}")
    page.locator(".segment").nth(number).hover()
    page.locator(".segment").nth(number).get_by_role("button", name="Correct the passage").click()
    expect(page.get_by_label("Text of this passage")).to_have_value(TURNS[number])
    return job_id


def test_words_are_corrected_in_place_and_undone(page: Page, live: Live) -> None:
    job_id = passage(page, live, 2)
    page.get_by_label("Text of this passage").fill(TURNS[2].replace("fog", "a thick fog"))
    page.get_by_label("Your name").fill("Ada")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".word.corrected")).to_have_text(["a", "thick"])
    with Spool(live.url) as spool:
        (edit,) = spool.edits(job_id)
        assert (edit.author, edit.text) == ("Ada", "but a thick")
        assert "nothing but a thick fog and the lamp" in spool.transcript(job_id)
    page.get_by_role("button", name="Details", exact=True).click()
    expect(page.locator(".history del")).to_have_text("but")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".word.corrected")).to_have_count(0)
    expect(page.locator(".segment p").nth(2)).to_contain_text(TURNS[2])


def test_a_passage_gets_another_speaker(page: Page, live: Live) -> None:
    job_id = passage(page, live, 3)
    page.get_by_label("Speaker of this passage").select_option(label="Speaker 1")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Text of this passage")).to_have_count(0)
    with Spool(live.url) as spool:
        assert {word.speaker for word in spool.words(job_id).words[-15:-7]} >= {"speaker_0"}
        (edit,) = spool.edits(job_id)
        assert edit.speaker == "speaker_0"


def test_a_passage_keeps_its_other_speaker_when_its_words_are_corrected_later(page: Page, live: Live) -> None:
    job_id = passage(page, live, 3)
    page.get_by_label("Speaker of this passage").select_option(label="Speaker 1")
    page.get_by_role("button", name="Save").click()
    text = page.get_by_label("Text of this passage")
    expect(text).to_have_count(0)
    with Spool(live.url) as spool:
        (moved,) = spool.edits(job_id)
        place = page.locator(".segment", has_text="horn")
        place.hover()
        place.get_by_role("button", name="Correct the passage").click()
        text.fill(text.input_value().replace("horn", "bell"))
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".word.corrected")).to_have_text(["bell"])
        words = spool.words(job_id).words
        assert {word.speaker for word in words[moved.first_word : moved.last_word + 1]} == {"speaker_0"}


def test_who_comes_second_sees_the_other_s_text_and_decides(page: Page, live: Live) -> None:
    job_id = passage(page, live, 0)
    with Spool(live.url) as spool:
        spool.edit(job_id, 4, 4, "port", author="Bo")
        page.get_by_label("Text of this passage").fill(TURNS[0].replace("harbour", "haven"))
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("alert")).to_contain_text("Bo changed these words meanwhile, to “port”")
        page.get_by_role("button", name="Replace").click()
        expect(page.locator(".word.corrected")).to_have_text(["haven"])
        assert [edit.stands for edit in spool.edits(job_id)] == [False, True]


def test_the_editor_is_reached_by_a_key_and_left_by_another(page: Page, live: Live) -> None:
    page.goto(f"{live.url}/#/jobs/{job_with_speakers(live)}")
    page.locator(".transcript").focus()
    page.keyboard.press("Home")
    page.keyboard.press("e")
    expect(page.get_by_label("Text of this passage")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".segment p").first).to_contain_text(TURNS[0])
