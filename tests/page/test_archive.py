"""The page as an archive: collections and text first, and what it says before anything is sent."""

import hashlib
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live, file_job
from spool.sounds.letters import spell_sounds
from spool.sounds.lexicon import Lexicon
from spool.store import get_job
from spool.store.transcripts.sounds import ChannelSounds, write_sounds
from tests.api.auth.keys import post
from tests.page.test_page import done_job, sound
from tests.spool.sounds.sounds import hear

expect.set_options(timeout=60_000)


def submit_reels(live: Live, recordings: Path, number: int = 3) -> tuple[str, list[dict[str, Any]]]:
    for reel in range(1, number + 1):
        (recordings / f"reel {reel}.wav").write_bytes(b"RIFF%d" % reel)
    request = {"source": f"{recordings.as_uri()}/", "name": "Reels of 1974", "project": "oral-history"}
    with httpx.Client(base_url=live.url, timeout=60) as http:
        batch = http.post("/v1/batches", json=request).json()["id"]
        return batch, http.get("/v1/jobs", params={"batch": batch}).json()["items"]


def test_the_archive_begins_with_collections_and_text(page: Page, live: Live, recordings: Path) -> None:
    page.goto("/")
    expect(page.get_by_text("There are no recordings yet.")).to_be_visible()
    batch, jobs = submit_reels(live, recordings)
    worker = live.work()
    worker.finish(jobs[0]["id"], ("keep", "the", "light", "<b>burning</b>"))
    worker.fail(jobs[1]["id"], "audio_empty", "There is nothing in it.")
    reels = page.locator(".collection").filter(has_text="Reels of 1974")
    expect(reels).to_contain_text("1 of 3 done")
    expect(reels).to_contain_text("a minute left")
    expect(page.get_by_text("“keep the light <b>burning</b> …”")).to_be_visible()
    reels.get_by_text("1 failed").click()
    expect(reels.get_by_role("listitem")).to_contain_text("1: ")
    failed = page.locator(".recordings li").filter(has_text="There is nothing in it.")
    failed.get_by_role("button", name="Try again").click()
    expect(failed).to_have_count(0)
    main = page.get_by_role("main").inner_text()
    assert not re.search(r"RTFx|studio-1|demo-tdt|job_|bat_|USD", main), "no operations figures"
    reels.get_by_role("link", name="Reels of 1974").click()
    expect(page).to_have_url(f"{live.url}/#/batches/{batch}")
    expect(page.get_by_role("navigation", name="Pages").get_by_text("Archive")).to_have_attribute(
        "aria-current", "true"
    )


def test_what_wants_a_person_leads_to_the_review(page: Page, live: Live, recordings: Path) -> None:
    _, jobs = submit_reels(live, recordings, 1)
    worker = live.work()
    worker.finish(jobs[0]["id"], ("keep", "the", "light", "burning"))
    with httpx.Client(base_url=live.url, timeout=60) as http:
        again = http.post(f"/v1/jobs/{jobs[0]['id']}/rerun", json={}).json()["id"]
    worker.finish(again, ("keep", "this", "lamp", "lit"))
    page.goto("/")
    page.get_by_role("link", name="1 passage to review").click()
    expect(page).to_have_url(f"{live.url}/#/review?project=oral-history")
    expect(page.get_by_role("navigation", name="Pages").get_by_text("Review")).to_have_attribute(
        "aria-current", "page"
    )


def test_the_archive_keeps_the_keyboards_place_while_it_follows(
    page: Page, live: Live, recordings: Path
) -> None:
    _, jobs = submit_reels(live, recordings)
    page.goto("/")
    link = page.locator(".collection").get_by_role("link", name="Reels of 1974")
    link.focus()
    live.work().finish(jobs[0]["id"])
    expect(page.locator(".collection").filter(has_text="Reels of 1974")).to_contain_text("1 of 3 done")
    expect(link).to_be_focused()


def test_a_folder_says_what_is_skipped_and_reused_before_it_is_sent(
    page: Page, live: Live, tmp_path: Path
) -> None:
    folder = tmp_path / "box 7"
    folder.mkdir()
    for name, seconds in (("side-a.wav", 2.0), ("side-b.wav", 3.0)):
        (folder / name).write_bytes(sound(seconds))
    (folder / "notes.txt").write_text("nothing to hear")
    (folder / ".DS_Store").write_bytes(b"x")
    page.goto("/#/submit")
    page.locator("#folder").set_input_files(folder)
    plan = page.locator(".plan")
    expect(plan).to_contain_text("2 new recordings, 80 kB, 5 s of sound.")
    plan.get_by_text("2 files are skipped").click()
    expect(plan.get_by_role("listitem")).to_have_text(
        ["box 7/.DS_Store: hidden", "box 7/notes.txt: not a recording, by its name"]
    )
    with httpx.Client(base_url=live.url, timeout=60) as http:
        assert http.get("/v1/jobs").json()["items"] == [], "nothing is sent before the button is pressed"
    plan.get_by_label("submit files with unknown names too").check()
    expect(page.get_by_role("button", name="Submit 3 recordings")).to_be_visible()
    plan.get_by_label("submit files with unknown names too").uncheck()
    page.get_by_role("button", name="Submit 2 recordings").click()
    expect(page.locator("main td.name a")).to_have_text(["box 7/side-b.wav", "box 7/side-a.wav"])


def test_what_was_transcribed_before_is_said_before_it_is_sent(
    page: Page, live: Live, tmp_path: Path
) -> None:
    tape = tmp_path / "tape.wav"
    tape.write_bytes(sound())
    with httpx.Client(base_url=live.url, timeout=60) as http:
        job = http.post("/v1/jobs", files={"file": ("first.wav", tape.read_bytes())}).json()["id"]
    live.work().finish(job, content_sha256=hashlib.sha256(tape.read_bytes()).hexdigest())
    page.goto("/#/submit")
    page.locator("#files").set_input_files(tape)
    page.get_by_text("1 recording was transcribed before").click()
    expect(page.locator(".plan").get_by_role("link", name="first.wav")).to_have_attribute(
        "href", f"#/jobs/{job}"
    )


def test_a_model_says_what_it_is_good_for_and_how_long_it_takes(
    page: Page, live: Live, tmp_path: Path
) -> None:
    done_job(live)
    tape = tmp_path / "tape.wav"
    tape.write_bytes(sound(30.0))
    page.goto("/#/submit")
    page.locator("select[name=model]").select_option("demo-tdt")
    about = page.locator("#about-model")
    expect(about).to_contain_text("Not for open speech.")
    expect(about).to_contain_text("for an hour of sound")
    page.locator("#files").set_input_files(tape)
    expect(page.locator(".plan")).to_contain_text(
        re.compile(r"1 new recording, .*30 s of sound\. About \d+ s")
    )


def test_a_folder_is_submitted_by_keyboard(page: Page, live: Live, tmp_path: Path) -> None:
    tape = tmp_path / "tape.wav"
    tape.write_bytes(sound())
    page.goto("/")
    page.get_by_role("link", name="Submit", exact=True).focus()
    page.keyboard.press("Enter")
    choose = page.get_by_role("button", name="Choose files")
    expect(choose).to_be_visible()
    with page.expect_file_chooser() as asked:
        choose.focus()
        page.keyboard.press("Enter")
    asked.value.set_files(tape)
    expect(page.get_by_role("button", name="Submit 1 recording")).to_be_visible()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Submit 1 recording":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="tape.wav")).to_be_visible()


def test_captions_say_what_to_do_before_anyone_speaks(page: Page, live: Live) -> None:
    live.work()
    page.goto("/#/live")
    words = page.get_by_role("log")
    expect(words.get_by_text("Press “Start listening” and speak.")).to_be_visible()
    expect(page.get_by_text("Not for open speech.")).to_be_visible()
    page.get_by_role("button", name="Captions").click()
    expect(words.get_by_text("Press “Start listening” and speak.")).to_be_visible()


def test_a_recording_whose_words_may_be_wrong_says_so_in_lists_and_on_its_page(
    page: Page, live: Live
) -> None:
    job_id = str(post(f"{live.url}/v1/jobs", files={"file": ("reel.wav", b"RIFF")}).json()["id"])
    warning = "demo-tdt is unsure of most of the words."
    live.work().finish(job_id, warnings=[warning])
    for place in ("/", "/#/jobs"):
        page.goto(place)
        expect(page.get_by_text("see its warnings")).to_have_attribute("title", warning)
    page.goto(f"/#/jobs/{job_id}")
    expect(page.get_by_text(warning)).to_be_visible()


def test_versions_of_a_recording_are_one_hit(page: Page, live: Live) -> None:
    job_id = str(post(f"{live.url}/v1/jobs", files={"file": ("reel.wav", b"RIFF")}).json()["id"])
    live.work().finish(job_id, ("我们", "在", "北京"))
    again = str(post(f"{live.url}/v1/jobs/{job_id}/rerun", json={}).json()["id"])
    live.work().finish(again, ("我们", "在", "北京"))
    page.goto("/#/search?q=北京")
    expect(page.get_by_text("我们在北京")).to_have_count(1)
    page.get_by_text("Also in").get_by_role("link", name="demo-tdt").click()
    page.wait_for_url(f"**/#/jobs/{job_id}?t=*")
    expect(page.locator(".transcript p")).to_have_text("我们在北京")


def test_what_sounds_like_a_name_is_listed_and_played_from_there(page: Page, live: Live) -> None:
    job_id = str(post(f"{live.url}/v1/jobs", files={"file": ("reel.wav", b"RIFF")}).json()["id"])
    live.work().finish(job_id, ("we", "met", "a", "conqueror", "on", "the", "pier"))
    lexicon = Lexicon({"okonkwo": spell_sounds("okonkwo")})
    with live.services.database.begin() as tx:
        frames, _ = hear([(1.0, "okonkwo")], 4.0, lexicon=lexicon)
        write_sounds(tx, job_id, get_job(tx, job_id).project, [ChannelSounds.of(frames)])
    page.goto("/#/search?q=okonkwo")
    expect(page.get_by_text("Nothing found.")).to_be_visible()
    page.get_by_text("Narrow down").click()
    page.get_by_label("Also what sounds like it").check()
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("Sounds like OW K OW NG K W OW")).to_be_visible()
    expect(page.locator(".hit")).to_contain_text("we met a conqueror on the pier")
    expect(page.locator(".hit")).to_contain_text("% sure")
    page.locator(".hit .at").click()
    page.wait_for_url(f"**/#/jobs/{job_id}?t=1*")


def test_an_empty_search_shows_what_can_be_searched_and_hits_come_before_filters(
    page: Page, live: Live, recordings: Path
) -> None:
    page.goto("/#/search")
    expect(page.get_by_text("Nothing is transcribed yet.")).to_be_visible()
    with httpx.Client(base_url=live.url, timeout=60) as http:
        job = http.post("/v1/jobs", json=file_job(recordings, project="council")).json()["id"]
    live.work().finish(job, ("keep", "the", "light"))
    page.reload()
    expect(page.get_by_text("Every word of 1 transcript")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("link", name="council")).to_be_visible()
    page.get_by_role("searchbox", name="Words").fill("light")
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_be_in_viewport(ratio=1)
    expect(page.locator(".found")).to_have_text(
        re.compile(rf"council · demo-tdt · .*{datetime.now(UTC).year}$")
    )
    expect(page.get_by_label("Speaker")).to_be_hidden()
    page.get_by_text("Narrow down").click()
    page.get_by_label("Project").select_option("council")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("Narrow down (1 filter)")).to_be_visible()
    expect(page.get_by_text("1 found")).to_be_visible()


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("money('0.0004', 'USD')", "less than 0.01 USD"),
        ("money('1234.5', 'USD')", "1,234.50 USD"),
        ("money('0', 'USD')", "0.00 USD"),
        ("price('0.0017', 'USD')", "0.0017 USD"),
        ("left(8040)", "2 h 14 min left"),
        ("left(20)", "less than a minute left"),
        ("left(null)", "time left not known yet"),
        ("span(5.58)", "5.6 s"),
        ("span(3599)", "1 h"),
        ("span(7200)", "2 h"),
        ("span(260000)", "3 days"),
        ("hours(2200000)", "611 h"),
        ("shortDateTime('2020-06-01T23:30:00Z')", "Jun 2, 2020, 01:30 AM"),
        ("language('de')", "German"),
    ],
)
def test_numbers_are_as_people_write_them(page: Page, live: Live, call: str, shown: str) -> None:
    browser = page.context.browser
    assert browser is not None
    reader = browser.new_page(base_url=live.url, timezone_id="Europe/Berlin", locale="en-US")
    reader.goto("/")
    text = reader.evaluate(f"import('/page/format.js').then((format) => format.{call})")
    assert text.replace("\u202f", " ") == shown
    reader.close()
