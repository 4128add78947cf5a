"""What a person does on the page, done by clicks and keys."""

import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from zipfile import ZipFile

import httpx
import soundfile
from playwright.sync_api import Page, expect
from pydantic import SecretStr
from sqlalchemy import update

from api.routes.page import FOLDER
from ops.testbed.running_api import Live, transcript_of
from spool.domain import JobOptions, ManifestReport, Scope, Source, passages_of
from spool.formats import FORMATS, render
from spool.ids import new_id
from spool.settings import Settings
from spool.store import NewJob, add_jobs, batch_jobs, close_batch, create_batch, create_job, create_key
from spool.store.queue import endings
from spool.tables import jobs
from spool.tables.batches import NewBatch

expect.set_options(timeout=60_000)
WORDS = ("keep", "the", "light", "<b>burning</b>", "keep", "watch")


def sound(seconds: float = 3.0) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, [0.0, 0.25] * round(seconds * 4000), 8000, format="WAV", subtype="PCM_16")
    return file.getvalue()


def done_job(live: Live, name: str = "reel 1.wav") -> str:
    """A job with a recording and a transcript of `WORDS`, of which the third is doubtful."""
    services, job_id = live.services, new_id("job")
    key = f"jobs/{job_id}/source"
    services.objects.put_bytes(key, sound())
    source = Source(kind="upload", uri=key, size=None, etag=None)
    with services.database.begin() as tx:
        create_job(tx, NewJob(id=job_id, source=source, options=JobOptions(model="demo-tdt"), name=name))
    worker = live.work()
    claim = worker.claim(job_id)
    worker.progress(claim, 3.0, 3.0)
    record = transcript_of(job_id, WORDS)
    doubtful = {"light": {"confidence": 0.2}}
    words = tuple(word.model_copy(update=doubtful.get(word.text, {})) for word in record.words)
    stored = services.objects.put_bytes(
        f"jobs/{job_id}/transcript.1.json",
        render(record.model_copy(update={"words": words}), "json").encode(),
    )
    with services.database.begin() as tx:
        outcome = endings.Outcome(3.0, stored.key, stored.sha256 or "", 1.0, len(WORDS))
        endings.finish_job(tx, claim, outcome, passages_of(record))
    return job_id


def test_the_system_follows_what_happens(page: Page, live: Live, recordings: Path) -> None:
    page.goto("/#/system")
    expect(page.get_by_text("No worker is running")).to_be_visible()
    done_job(live)
    expect(page.locator(".tile", has_text="done")).to_contain_text("1")
    expect(page.get_by_role("table", name="").first).to_contain_text("studio-1")


def test_a_word_that_is_clicked_plays_and_is_lit(page: Page, live: Live) -> None:
    page.goto(f"/#/jobs/{done_job(live)}")
    words = page.locator(".word")
    expect(words).to_have_count(len(WORDS))
    assert words.nth(3).text_content() == "<b>burning</b>", "what was said is text and never markup"
    expect(page.locator(".word.doubt")).to_have_text(["light"])
    words.nth(4).click()
    page.wait_for_function("document.querySelector('audio').currentTime >= 2")
    expect(page.locator(".word.lit")).to_have_count(1)
    page.evaluate(
        "document.querySelector('audio').pause(); document.querySelector('audio').currentTime = 0.6"
    )
    expect(page.locator(".word.lit")).to_have_text(["the"])


def test_a_recording_at_a_web_address_plays_from_there(page: Page, live: Live) -> None:
    job_id, address = done_job(live), "https://archive.example.org/reel.wav"
    with live.services.database.begin() as tx:
        elsewhere = {"source_kind": "https", "source_uri": address}
        tx.execute(update(jobs).where(jobs.c.id == job_id).values(**elsewhere))
    page.route(address, lambda route: route.fulfill(body=sound(), content_type="audio/wav"))
    with page.expect_response(address) as answered:
        page.goto(f"/#/jobs/{job_id}")
    assert answered.value.ok, "the page's policy lets it"
    expect(page.locator("audio")).to_have_js_property("duration", 3)
    assert page.locator("audio").evaluate("audio => audio.currentSrc") == address


def test_the_transcript_works_by_keyboard_and_is_searched(page: Page, live: Live) -> None:
    page.goto(f"/#/jobs/{done_job(live)}")
    page.locator(".transcript").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".word.here")).to_have_text(["the"])
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('audio').currentTime >= 0.5")
    page.keyboard.press("d")
    expect(page.locator(".word.here")).to_have_text(["light"])
    page.keyboard.press(">")
    expect(page.get_by_label("Speed", exact=True)).to_have_value("1.25")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.keyboard.press(" ")
    page.wait_for_function("document.querySelector('audio').paused")
    page.keyboard.press("j")
    page.wait_for_function("document.querySelector('audio').currentTime === 0")
    assert (
        page.locator(".transcript :is(button, a, [tabindex='0'])").count()
        == page.locator(".transcript [tabindex='-1']").count()
    )
    assert "null" not in page.locator("main").inner_text()
    search = page.get_by_role("searchbox", name="Find in this text")
    search.fill("KEEP w")
    expect(page.locator(".word.found")).to_have_text(["keep", "watch"])
    search.fill("keep")
    expect(page.get_by_text("2 found")).to_be_visible()
    search.press("Enter")
    search.press("Enter")
    expect(page.get_by_text("2 of 2")).to_be_visible()
    assert page.locator(".word.here").get_attribute("data-word") == "4"


def test_a_search_leads_to_the_words_in_their_recording(page: Page, live: Live) -> None:
    job_id = done_job(live)
    page.goto("/")
    page.get_by_role("searchbox", name="Search all transcripts").fill('"keep watch"')
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_have_text(["0:02keep the light <b>burning</b> keep watch"])
    expect(page.get_by_text("1 found")).to_be_visible()
    page.locator(".match").click()
    expect(page).to_have_url(f"{live.url}/#/jobs/{job_id}?t=2")
    expect(page.locator(".word.here")).to_have_text(["keep"])
    assert page.locator(".word.here").get_attribute("data-word") == "4"
    page.wait_for_function("document.querySelector('audio').currentTime >= 2")

    page.goto("/#/search?q=absent")
    expect(page.get_by_text("Nothing found.")).to_be_visible()
    page.get_by_role("searchbox", name="Words").fill("a*")
    page.keyboard.press("Enter")
    expect(page.locator(".card.error")).to_contain_text("at least 3 letters")


def test_every_format_is_a_download(page: Page, live: Live) -> None:
    page.goto(f"/#/jobs/{done_job(live)}")
    page.locator("summary", has_text="Download").click()
    forms = {*FORMATS, "iiif"} - {"lattice", "kaldi", "rttm"}  # which this job did not ask for
    shown = page.locator(".downloads [data-form]")
    expect(shown).to_have_count(len(forms))
    assert set(shown.evaluate_all("all => all.map((one) => one.dataset.form)")) == forms
    with page.expect_download() as begun:
        page.get_by_role("button", name="SubRip (.srt)").click()
    expect(shown.first).to_be_hidden()
    assert begun.value.suggested_filename == "reel 1.srt"
    assert "keep the light" in begun.value.path().read_text()


def test_a_recording_is_handed_in_by_dialog_and_by_dropping(page: Page, live: Live, tmp_path: Path) -> None:
    tape = tmp_path / "tape ü.wav"
    tape.write_bytes(sound())
    page.goto("/")
    page.get_by_role("link", name="Submit", exact=True).click()
    page.locator("#files").set_input_files(tape)
    page.get_by_text("More choices").click()
    page.get_by_label("Project").fill("oral-history")
    page.get_by_role("button", name="Submit 1 recording").click()
    expect(page.get_by_role("heading", name="tape ü.wav")).to_be_visible()
    expect(page.locator(".about .state")).to_have_text("queued")
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["RIFF"], "dropped.wav"));
            const told = { dataTransfer: data, bubbles: true, cancelable: true };
            window.dispatchEvent(new DragEvent("drop", told));
        }"""
    )
    page.get_by_role("button", name="Submit 1 recording").click()
    expect(page.get_by_role("heading", name="dropped.wav")).to_be_visible()
    page.on("dialog", lambda question: question.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".about .state")).to_have_text("cancelled")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".about .state")).to_have_text("queued")


def test_what_was_submitted_before_is_not_sent_again(page: Page, live: Live, tmp_path: Path) -> None:
    tapes = [tmp_path / "one.wav", tmp_path / "two.wav"]
    for tape in tapes:
        tape.write_bytes(sound())

    def choose(*chosen: Path) -> None:
        page.goto("/#/submit")
        page.locator("#files").set_input_files(chosen)

    choose(tapes[0])
    page.get_by_role("button", name="Submit 1 recording").click()
    expect(page.get_by_role("heading", name="one.wav")).to_be_visible()
    choose(*tapes)
    page.get_by_role("button", name="Submit 2 recordings").click()
    expect(page.get_by_text("1 unchanged, 1 new.")).to_be_visible()
    expect(page.locator("main td.name a")).to_have_text(["two.wav", "one.wav"])
    choose(tapes[0])
    page.get_by_text("More choices").click()
    page.get_by_label("transcribe again what was submitted before").check()
    page.get_by_role("button", name="Submit 1 recording").click()
    expect(page.get_by_role("heading", name="one.wav")).to_be_visible()
    page.goto("/#/jobs")
    expect(page.locator("main td.name a")).to_have_text(["one.wav", "two.wav", "one.wav"])


def test_a_failed_job_says_why(page: Page, live: Live) -> None:
    http_job = live.services
    with http_job.database.begin() as tx:
        source = Source(kind="file", uri="file:///archive/a.wav", size=None, etag=None)
        job, _ = create_job(tx, NewJob(source=source, options=JobOptions(model="demo-tdt"), name="a.wav"))
    live.work().fail(job.id, "audio_unreadable", "It is a text file.")
    page.goto("/#/jobs?state=failed")
    page.get_by_role("link", name="a.wav").click()
    expect(page.locator(".card.error")).to_have_text("Failed: It is a text file.")


NO_BEAT = (
    "const real = setTimeout; window.setTimeout = (f, ms, ...more) => ms === 2000 ? 0 : real(f, ms, ...more)"
)


def new_job_of(live: Live, name: str) -> str:
    with live.services.database.begin() as tx:
        source = Source(kind="file", uri="file:///archive/a.wav", size=None, etag=None)
        return create_job(tx, NewJob(source=source, options=JobOptions(model="demo-tdt"), name=name))[0].id


def test_an_open_job_follows_its_events_without_asking(page: Page, live: Live) -> None:
    """The page's own clock is stopped: what it shows can only have come by the stream."""
    page.add_init_script(NO_BEAT)
    job_id = new_job_of(live, "a.wav")
    page.goto(f"/#/jobs/{job_id}")
    expect(page.locator(".about .state")).to_have_text("queued")
    worker = live.work()
    claim = worker.claim(job_id)
    expect(page.locator(".about .state")).to_have_text("running")
    worker.progress(claim, 30.0, 90.0)
    expect(page.locator("progress, .bar").first).to_be_visible()
    expect(page.get_by_text("30 s of 2 min")).to_be_visible()
    with live.services.database.begin() as tx:
        endings.fail_job(tx, claim, "audio_unreadable", "It is a text file.")
    expect(page.locator(".card.error")).to_have_text("Failed: It is a text file.")


def test_an_open_batch_follows_its_jobs_and_without_a_stream_it_asks(page: Page, live: Live) -> None:
    with live.services.database.begin() as tx:
        made, _ = create_batch(tx, NewBatch("default", "reels", "manifest", True, "a"))
        lines = [
            NewJob(
                source=Source("file", f"file:///{n}.wav"),
                options=JobOptions(model="demo-tdt"),
                name="x",
                batch_id=made.id,
                batch_line=n,
                custom_id=str(n),
            )
            for n in range(2)
        ]
        add_jobs(tx, made.id, lines)
        close_batch(tx, made.id, ManifestReport(2))
        first, second = (job.id for job in batch_jobs(tx, made.id, None, 2))
    page.add_init_script(NO_BEAT)
    page.goto(f"/#/batches/{made.id}")
    expect(page.get_by_text("0 of 2 jobs ended")).to_be_visible()
    live.work().finish(first)
    expect(page.get_by_text("1 of 2 jobs ended")).to_be_visible()
    expect(page.locator("main td.name a")).to_have_count(2)  # its jobs, each with a link

    # A tab of its own, where the clock runs and no stream comes through
    browser = page.context.browser
    assert browser is not None
    asking = browser.new_page(base_url=live.url)
    asking.route("**/events", lambda route: route.abort())
    asking.goto(f"/#/batches/{made.id}")
    expect(asking.get_by_text("1 of 2 jobs ended")).to_be_visible()
    live.work().finish(second)
    expect(asking.get_by_text("2 of 2 jobs ended")).to_be_visible()
    expect(page.get_by_text("2 of 2 jobs ended")).to_be_visible()
    asking.close()


def test_a_batch_lists_its_jobs_and_what_failed_is_a_link(page: Page, live: Live, recordings: Path) -> None:
    (recordings / "reel 2.wav").write_bytes(b"RIFF")
    (recordings / "notes.txt").write_text("no recording")
    with httpx.Client(base_url=live.url, timeout=60) as client:
        batch = client.post("/v1/batches", json={"source": f"{recordings.as_uri()}/"}).json()
        jobs = client.get("/v1/jobs", params={"batch": batch["id"]}).json()["items"]
    live.work().fail(jobs[0]["id"], "audio_empty", "reel: there is nothing in it.")
    live.work().finish(jobs[1]["id"], expected_seconds=60.0)
    page.goto(f"/#/batches/{batch['id']}")
    expect(page.get_by_text("1 recording was cut off.")).to_be_visible()
    expect(page.get_by_text("1 file skipped")).to_be_visible()
    expect(page.get_by_text("cut off, 59 s missing")).to_be_visible()
    page.get_by_role("link", name=jobs[0]["name"]).wait_for()
    with page.expect_download() as begun:
        page.get_by_role("button", name="Download transcripts (zip)").click()
    assert begun.value.suggested_filename == f"{batch['id']}.txt.zip"
    with ZipFile(begun.value.path()) as archive:
        assert len(archive.namelist()) == 2
    page.goto("/#/batches")
    page.get_by_role("row", name=batch["name"]).get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("link", name=jobs[0]["name"])).to_be_visible()
    expect(page.get_by_role("link", name=jobs[1]["name"])).to_be_hidden()
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"/#/batches/{batch['id']}")
    expect(page.get_by_text("1 recording was cut off.")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_invalid_lines_are_said_in_the_list_and_on_the_batch(
    page: Page, live: Live, recordings: Path
) -> None:
    source = (recordings / "reel 1.wav").as_uri()
    manifest = f'{{"source": "{source}"}}\nbroken\n'.encode()
    with httpx.Client(base_url=live.url, timeout=60) as client:
        sent = client.post("/v1/batches", files={"file": ("box.jsonl", manifest)})
    assert sent.status_code == 202, sent.text
    page.goto("/#/batches")
    row = page.get_by_role("row").filter(has_text="manifest")
    expect(row.get_by_text("0 of 1", exact=True)).to_be_visible()
    expect(row.get_by_text("1 invalid line", exact=True)).to_be_visible()
    row.get_by_role("link", name="manifest").click()
    expect(page.get_by_text("The line is not JSON")).to_be_visible()
    expect(page.get_by_role("heading", name="1 invalid line", exact=True)).to_be_visible()


def test_costs_are_a_plot_and_a_table(page: Page, live: Live) -> None:
    done_job(live)
    page.goto("/#/costs")
    expect(page.locator("svg.plot rect.bar1").last).to_be_visible()
    for width in (1200, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.reload()
        label = page.locator("svg.plot text").first
        expect(label).to_be_visible()
        assert 9 < (label.bounding_box() or {"height": 0})["height"] < 26, "read like the text around it"
    page.set_viewport_size({"width": 1200, "height": 900})
    rows = page.locator("tbody").first
    expect(rows).to_contain_text(datetime.now(UTC).date().isoformat()[:8])
    expect(page.locator("tbody").last).to_contain_text("whisper-1")
    page.locator("select[name=by]").select_option("project")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_contain_text("default")
    with page.expect_download() as begun:
        page.get_by_role("button", name="Download CSV").click()
    assert begun.value.path().read_text().startswith("project,audio_hours")


def test_a_server_with_keys_asks_for_one(page: Page, live: Live) -> None:
    job = done_job(live)
    with live.services.database.begin() as tx:
        text = create_key(tx, "reader", "default", [Scope.READ]).text
    live.services.key_cache.check_required()
    page.goto(f"/#/jobs/{job}")
    page.get_by_label("API key").fill("wrong")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("The API key is invalid")).to_be_visible()
    page.get_by_label("API key").fill(text)
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".word")).to_have_count(len(WORDS))
    page.locator(".word").nth(2).click()
    page.wait_for_function("document.querySelector('audio').currentTime >= 1")
    assert text not in page.evaluate("document.querySelector('audio').src")
    page.goto("/#/system")
    expect(page.get_by_text("Your key may not list workers")).to_be_visible()


def test_jobs_are_found_by_their_name(page: Page, live: Live) -> None:
    done_job(live, "Harbour 1961.wav")
    done_job(live, "Council.wav")
    page.goto("/#/jobs")
    names = page.locator("main td.name a")
    expect(names).to_have_text(["Council.wav", "Harbour 1961.wav"])
    page.get_by_label("Name").fill("harbour")
    page.keyboard.press("Enter")
    expect(names).to_have_text(["Harbour 1961.wav"])
    assert page.url.endswith("#/jobs?name=harbour")
    page.get_by_label("State").select_option("failed")
    expect(page.get_by_text("No recording matches these filters.")).to_be_visible()
    page.get_by_role("link", name="Clear").click()
    expect(names).to_have_count(2)


def test_a_server_that_is_gone_is_said(
    page: Page, start_api: Callable[[Settings], Live], settings: Settings
) -> None:
    live = start_api(settings)
    page.goto(f"{live.url}/#/jobs")
    expect(page.get_by_role("heading", name="Recordings")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()
    page.context.set_offline(True)
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    page.context.set_offline(False)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_nothing_comes_from_elsewhere_and_a_phone_need_not_scroll_sideways(page: Page, live: Live) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 360, "height": 740})
    for address in (
        "/",
        "/#/search?q=light",
        "/#/submit",
        "/#/live",
        "/#/system",
        "/#/jobs",
        "/#/batches",
        "/#/costs",
        f"/#/jobs/{done_job(live)}",
    ):
        page.goto(address)
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address
    assert all(url.startswith((live.url, "blob:")) for url in asked)
    policy = page.request.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    files = "".join(path.read_text() for path in FOLDER.iterdir()).replace("http://www.w3.org/", "")
    assert "http://" not in files
    assert "https://" not in files


def test_the_token_of_the_printed_address_is_kept_and_leaves_the_address(
    page: Page, start_api: Callable[[Settings], Live], settings: Settings
) -> None:
    live = start_api(settings.model_copy(update={"api_token": SecretStr("token-of-this-home")}))
    page.goto(f"{live.url}/#token=token-of-this-home")
    expect(page.get_by_role("heading", name="Archive")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert "token" not in page.url


def test_the_documentation_loads_nothing_from_elsewhere(page: Page, live: Live) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text) if message.type == "error" else None)
    page.goto("/docs")
    page.get_by_text("/v1/jobs/{job_id}/transcript", exact=True).click()
    expect(page.get_by_text("Format of the transcript").first).to_be_visible()
    assert requested
    assert all(url.startswith((live.url, "data:")) for url in requested), requested
    assert refused == []
