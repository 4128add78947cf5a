"""The versions of a recording on the page."""

import io
import json
import re
from pathlib import Path

import soundfile
from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live, file_job
from spool.store import batch_jobs, get_job, typescript_of
from tests.api.auth.keys import post

expect.set_options(timeout=60_000)


def test_a_recording_is_run_again_and_the_words_compared(page: Page, live: Live) -> None:
    files = {"file": ("reel.wav", b"RIFF" + bytes(40))}
    first = str(post(f"{live.url}/v1/jobs", files=files).json()["id"])
    work = live.work()
    work.finish(first, ("keep", "the", "light", "Petersen"))
    page.goto(f"/#/jobs/{first}")
    page.get_by_role("button", name="Details", exact=True).click()
    page.get_by_role("button", name="Run again").click()
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    expect(page.get_by_role("heading", name="reel.wav")).to_be_visible()
    page.wait_for_url(lambda url: first not in url)
    other = page.url.rpartition("/")[2]
    work.finish(other, ("keep", "the", "bright", "light", "Pedersen"))
    # Until then the details are those of the first.
    expect(page.get_by_text("Pedersen", exact=True)).to_be_visible()
    page.get_by_role("button", name="Details", exact=True).click()
    page.get_by_role("link", name="Compare").click()
    expect(page.locator("del").last).to_have_text("Pedersen")
    expect(page.locator("ins")).to_have_text("Petersen")
    expect(page.get_by_text("2 differences; 2 of 5 words: word error rate 40 %")).to_be_visible()
    page.get_by_role("link", name="by doubt").click()
    expect(page.get_by_role("link", name="by time")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("link", name="Play from").first.click()
    expect(page.get_by_role("group", name="Transcript.")).to_be_visible()


def test_a_stretch_is_run_again_from_the_selected_words(page: Page, live: Live) -> None:
    files = {"file": ("reel.wav", b"RIFF" + bytes(40))}
    first = str(post(f"{live.url}/v1/jobs", files=files).json()["id"])
    live.work().finish(first, ("keep", "the", "light", "Petersen"))
    page.goto(f"/#/jobs/{first}")
    page.get_by_text("Petersen", exact=True).wait_for()
    page.evaluate(
        """() => {
            const words = [...document.querySelectorAll("[data-word]")];
            getSelection().setBaseAndExtent(words[1].firstChild, 1, words[2].firstChild, 3);
        }"""
    )
    page.get_by_role("button", name="Details", exact=True).click()
    page.get_by_role("button", name="Run a stretch again").click()
    times = [page.get_by_role("dialog").get_by_label(label, exact=True) for label in ("From", "To")]
    words = json.loads(page.request.get(f"{live.url}/v1/jobs/{first}/transcript").text())["words"]
    filled = [float(each.input_value().rpartition(":")[2]) for each in times]
    assert filled[0] <= words[1]["start"] < words[2]["end"] <= filled[1] < words[3]["end"]
    times[1].fill("soon")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("(at => at.scrollWidth <= at.clientWidth)(document.querySelector('dialog[open]'))")
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    expect(page.get_by_text("Write the times as 12:30 or in seconds.")).to_be_visible()
    times[1].fill("0:01")
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    page.wait_for_url(lambda url: first not in url)
    other = page.url.rpartition("/")[2]
    with live.services.database.read() as tx:
        stretch = get_job(tx, other).stretch
    assert stretch is not None
    assert (stretch.job, stretch.start, stretch.end) == (first, filled[0], 1.0)
    live.work().finish(other, ("keep", "the", "lamp", "Petersen"))
    page.get_by_text("lamp", exact=True).wait_for()
    page.get_by_role("button", name="Details", exact=True).click()
    expect(page.locator(".versions li").filter(has_text="to 0:01 again")).to_be_visible()
    page.get_by_role("link", name="this version").click()
    page.wait_for_url(lambda url: first in url)


def test_a_batch_is_summed_up_beside_its_later_versions(page: Page, live: Live, recordings: Path) -> None:
    manifest = json.dumps({"source": file_job(recordings)["source"], "name": "Reel 42"})
    headers = {"Content-Type": "application/x-ndjson"}
    batch = post(f"{live.url}/v1/batches", content=manifest, headers=headers).json()["id"]
    with live.services.database.read() as tx:
        [first] = batch_jobs(tx, batch, None, 2)
    work = live.work()
    work.finish(first.id, ("keep", "the", "light", "Petersen"))
    other = post(f"{live.url}/v1/jobs/{first.id}/rerun", json={}).json()["id"]
    work.finish(other, ("keep", "the", "light", "Pedersen"))
    page.goto(f"/#/batches/{batch}")
    page.get_by_role("link", name="Compare with later versions").click()
    expect(page.get_by_text("1 recording; 1 of 4 words changed: word error rate 25 %")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("link", name="Reel 42").click()
    expect(page.locator("ins")).to_have_text("Pedersen")


def test_a_transcript_that_is_there_is_aligned_and_one_of_another_tape_says_so(
    page: Page, live: Live
) -> None:
    files = {"file": ("reel.wav", b"RIFF" + bytes(40))}
    first = str(post(f"{live.url}/v1/jobs", files=files).json()["id"])
    work = live.work()
    work.finish(first)
    page.goto(f"/#/jobs/{first}")
    page.get_by_role("button", name="Details", exact=True).click()
    page.get_by_role("button", name="Run again").click()
    script = {
        "name": "reel.txt",
        "mimeType": "text/plain",
        "buffer": b"Ada: keep the\nBo: light\nAda: on\nBo: now",
    }
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_label("Existing transcript").wait_for()
    assert page.evaluate("(at => at.scrollWidth <= at.clientWidth)(document.querySelector('dialog[open]'))")
    page.get_by_label("Existing transcript").set_input_files(script)  # type: ignore[arg-type]
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    page.wait_for_url(lambda url: first not in url)
    other = page.url.rpartition("/")[2]
    with live.services.database.read() as tx:
        align = get_job(tx, other).options.align
        assert align is not None
        text = typescript_of(tx, other, align.sha256)
    assert [word.speaker for word in text.words] == ["Ada", "Ada", "Bo", "Ada", "Bo"]
    work.finish(other, text.texts, warnings=["The text does not seem to belong to this recording."])
    expect(page.get_by_text("does not seem to belong")).to_be_visible()
    page.get_by_role("button", name="Details", exact=True).click()
    versions = page.locator(".versions li")
    expect(versions).to_have_count(2)
    expect(versions.filter(has_text="greedy")).to_be_visible()
    expect(versions.filter(has_text="aligned text")).to_be_visible()
    expect(page.get_by_text("5 words of an existing transcript")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_stretch_is_cited_with_its_words_and_its_sound(page: Page, live: Live) -> None:
    file = io.BytesIO()
    soundfile.write(file, [0.0, 0.25] * 12_000, 8000, format="WAV", subtype="PCM_16")
    first = str(post(f"{live.url}/v1/jobs", files={"file": ("reel.wav", file.getvalue())}).json()["id"])
    live.work().finish(first, ("keep", "the", "light"))
    page.goto(f"/#/jobs/{first}")
    page.get_by_text("light", exact=True).wait_for()
    page.get_by_role("button", name="Details", exact=True).click()
    page.get_by_role("button", name="Cite a stretch").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("From", exact=True).fill("0")
    dialog.get_by_label("To", exact=True).fill("0:01")
    page.set_viewport_size({"width": 390, "height": 844})
    dialog.get_by_role("button", name="Cite", exact=True).click()
    expect(dialog.get_by_label("Citation")).to_have_value(
        re.compile(r"^reel\.wav \(default\), 0:00\.0 to 0:01\.0")
    )
    assert page.evaluate("(at => at.scrollWidth <= at.clientWidth)(document.querySelector('dialog[open]'))")
    with page.expect_download() as begun:
        dialog.get_by_role("button", name="Sound (.wav)").click()
    assert soundfile.info(begun.value.path()).frames == 8000
    with page.expect_download() as begun:
        dialog.get_by_role("button", name="Subtitles (.srt)").click()
    assert "keep" in begun.value.path().read_text()
