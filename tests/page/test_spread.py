"""A corrected name offered elsewhere on the page: heard, accepted, and undone."""

import io
import os
from pathlib import Path

import soundfile
from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live
from spool.client import Spool
from tests.api.auth.keys import post
from tests.page.accessible import find_faults

expect.set_options(timeout=60_000)


def record(live: Live, name: str, words: str) -> str:
    sound = io.BytesIO()
    soundfile.write(sound, [0.0, 0.25] * 24_000, 8000, format="WAV", subtype="PCM_16")
    job_id = str(post(f"{live.url}/v1/jobs", files={"file": (name, sound.getvalue())}).json()["id"])
    live.work().finish(job_id, tuple(words.split()))
    return job_id


def text_of(live: Live, job_id: str) -> str:
    with Spool(live.url) as spool:
        return spool.transcript(job_id).strip()


def test_a_corrected_name_is_offered_where_it_was_written_otherwise(page: Page, live: Live) -> None:
    first = record(live, "reel-1.wav", "we met oh conquer on the pier")
    one, two = (
        record(live, "reel-2.wav", "then oh conquer spoke"),
        record(live, "reel-3.wav", "so Okonkvo, left"),
    )
    page.goto(f"/#/jobs/{first}")
    page.locator(".segment").first.hover()
    page.get_by_role("button", name="Correct the passage").click()
    page.get_by_label("Text of this passage").fill("we met Okonkwo on the pier")
    page.get_by_label("Your name").fill("Ada")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#notices")).to_contain_text("2 other places may say Okonkwo.")
    page.get_by_role("button", name="Look at them").click()
    dialog = page.get_by_role("dialog", name="Okonkwo elsewhere")
    rows = dialog.get_by_role("listitem")
    expect(rows).to_have_count(2)
    expect(dialog).to_contain_text("reel-2.wav, 0:00: the same words")
    for width, scheme in ((1280, "light"), (390, "light"), (1280, "dark"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        assert find_faults(page, f"at {width}, {scheme}") == []
        if shots := os.environ.get("SHOTS"):
            page.screenshot(path=Path(shots) / f"spread-{width}-{scheme}.png")
    said = rows.filter(has_text="oh conquer")
    said.get_by_role("button", name="Play").click()
    expect(said.get_by_role("button", name="Pause")).to_be_visible()
    said.get_by_role("button", name="Accept").click()
    expect(said).to_contain_text("Corrected")
    assert (text_of(live, one), text_of(live, two)) == ("then Okonkwo spoke", "so Okonkvo, left")
    rows.filter(has_text="Okonkvo").get_by_role("button", name="Accept").click()
    expect(dialog.get_by_text("1 place corrected.")).to_be_visible()
    expect(rows.filter(has_text="Okonkvo")).to_contain_text("Corrected")
    assert text_of(live, two) == "so Okonkwo, left"
    dialog.get_by_role("button", name="Undo all").click()
    expect(dialog).to_contain_text("Everything is as it was before.")
    assert (text_of(live, one), text_of(live, two)) == ("then oh conquer spoke", "so Okonkvo, left")
    dialog.get_by_role("button", name="Accept all 2").click()
    expect(dialog).to_contain_text("2 places corrected.")
    dialog.get_by_role("button", name="Close").click()
    assert (text_of(live, one), text_of(live, two)) == ("then Okonkwo spoke", "so Okonkwo, left")
    with Spool(live.url) as spool:
        assert {(each.author, each.from_job) for each in spool.edits(one) if each.stands} == {("Ada", first)}
    page.get_by_role("button", name="Details", exact=True).click()
    page.get_by_role("button", name="Elsewhere…").click()
    expect(page.locator("#notices")).to_contain_text("No other places of Okonkwo were found.")
    page.goto(f"/#/jobs/{one}")
    page.get_by_role("button", name="Details", exact=True).click()
    expect(page.locator(".history")).to_contain_text("like a correction elsewhere")
