"""The microphone on the page: words come, settle and grow large. The worker is played; the browser and its
microphone, which beeps, are real."""

from dataclasses import asdict
from typing import Any

from playwright.sync_api import Page, expect
from sqlalchemy import update

from ops.testbed.running_api import Live
from ops.testbed.waiting import until
from spool.broker import LiveSignals, words_channel
from spool.domain import (
    AnnouncedModel,
    ChunkSpan,
    DecodedChunk,
    Job,
    Recognition,
    Word,
    decode_record,
    log_prefix,
)
from spool.store import JobFilter, list_jobs
from spool.tables import workers


def newest(live: Live) -> Job | None:
    with live.services.database.read() as tx:
        return next(iter(list_jobs(tx, JobFilter(), limit=1).items), None)


def kinds(live: Live, job_id: str) -> list[str]:
    objects = live.services.objects
    found: list[str] = []
    for item in objects.list(log_prefix(job_id)):
        with objects.open(item.key) as stream:
            found.append(decode_record(stream.read()).kind)
    return found


def test_words_settle_while_the_microphone_is_on(page: Page, live: Live) -> None:
    worker = live.work()
    page.goto("/#/listen")
    page.get_by_label("Model").select_option("demo-tdt")
    page.get_by_role("button", name="Start listening").click()
    until(lambda: newest(live), "a job")
    job = newest(live)
    assert job is not None
    claim = worker.claim(job.id)
    expect(page.get_by_text("Listening. Speak.")).to_be_visible()
    until(lambda: "audio" in kinds(live, job.id), "audio in the log")
    assert job.options.live is not None
    assert job.options.live.sample_rate == 16_000
    meter = page.get_by_label("Level")
    until(lambda: float(meter.evaluate("meter => meter.value")) > 0, "the microphone's beep")

    signals = LiveSignals(live.settings)
    words = page.get_by_role("log")
    partial: dict[str, Any] = {
        "type": "partial",
        "number": 0,
        "start": 0.0,
        "end": 0.5,
        "text": "<b>keep",
        "stable": "",
    }
    partial |= {"words": []}

    def shown() -> bool:
        signals.tell(words_channel(job.id), partial)
        return "<b>keep" in (words.text_content() or "")

    until(shown, "a partial, as text")
    spoken = tuple(
        Word(text=word, start=index / 2, end=index / 2 + 0.4, confidence=0.9)
        for index, word in enumerate(("keep", "the", "light"))
    )
    worker.save(
        claim, DecodedChunk(ChunkSpan(0, 0, 0, 24_000, 0, 24_000), Recognition(words=spoken, engine_ns=1))
    )
    expect(words.locator("p:not(.unsettled)")).to_have_text("0:00keep the light")
    expect(page.locator(".unsettled")).to_be_empty()

    page.get_by_role("button", name="Captions").click()
    expect(page.get_by_role("heading", name="Live")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Live")).to_be_visible()

    page.get_by_role("button", name="Stop").click()
    until(lambda: kinds(live, job.id)[-1] == "end", "the end of the log")
    worker.finish(job.id, claim=claim)
    page.get_by_role("link", name="the recording and its transcript").click()
    expect(page.get_by_role("heading", name=job.name)).to_be_visible()
    signals.close()


def test_models_that_cannot_stream_are_not_offered(page: Page, live: Live) -> None:
    worker = live.work()
    for streams in (True, False):
        facts = {"demo-tdt": asdict(AnnouncedModel(streams=streams))}
        with live.services.database.begin() as tx:
            tx.execute(update(workers).where(workers.c.id == worker.info.id).values(model_facts=facts))
        live.services.fleet.read()
        page.goto("/")
        page.goto("/#/listen")
        press = page.get_by_role("button", name="Start listening")
        if streams:
            expect(press).to_be_enabled()
        else:
            expect(page.get_by_text("No model here can stream")).to_be_visible()
            expect(press).to_be_disabled()


def test_a_session_that_is_refused_says_why(page: Page) -> None:
    page.goto("/#/listen")
    page.get_by_role("button", name="Start listening").click()
    expect(page.get_by_role("status").filter(has_text="is running.").first).to_be_visible()
    expect(page.get_by_role("button", name="Start listening")).to_be_enabled()
