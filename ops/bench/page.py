"""How long the page takes to show a recording of 20 hours, and whether it stops while one reads.

    python -m ops.bench.page --words 200000 --rounds 3

An API of its own with one recording: two speakers who take turns of 12 to 60 words, 2.8 words a second.
Chromium opens it with an empty cache, in a window of 1280 x 900. Prints, as the median and the worst of the
rounds, in milliseconds: from the request of the address until the first words were painted, and until all
were there; the longest task of the main thread meanwhile; the longest frame and task while it is scrolled
through by small steps, from end to end, and by jumps; from the request of a link to a time until its word is
in view; and the memory of the page's script. One more round, with Chromium's trace, has the main thread's own
processor time of the longest tasks, which others on the machine do not lengthen. The trace itself does: it
doubles a frame while scrolling. At the end, where the API can no longer send the record as it is stored: the
first words once a speaker has a name, once a word is corrected too, and once a minute is closed to readers;
that is then opened again.

With `--saving` no browser is started: it prints what it takes to save corrections of single words all over
the recording, half of which are replaced by two, as a request, of it the transaction, and of the processor.
"""

import argparse
import json
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

import structlog
from playwright.sync_api import Browser, Page, sync_playwright
from sqlalchemy import Connection, event

import migrations
from ops.testbed.running_api import Live, start, transcript_of
from spool.broker.embedded_redis import EmbeddedRedis
from spool.client import Spool
from spool.domain import (
    DiarizationFacts,
    JobOptions,
    JobSpeaker,
    Segment,
    Source,
    Speaker,
    Transcript,
    Turn,
    passages_of,
)
from spool.domain.transcript import recount_speakers
from spool.formats import render
from spool.ids import new_id
from spool.settings import load_settings
from spool.store import NewJob, create_job
from spool.store.queue import endings

SECONDS_A_WORD = 1 / 2.8
TEXT_MS, STALL_MS = 1000, 100
_TRACED = ("toplevel", "disabled-by-default-devtools.timeline")
_SAID = ("and", "the", "light", "keeps", "burning", "until", "we", "never", "came", "back", "from", "it")
_WATCH = """
    window.tasks = [];
    new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((one) => one.duration)))
        .observe({ type: "longtask", buffered: true });
    const look = () => {
        const words = document.querySelectorAll(".transcript .segment");
        if (!words.length) return requestAnimationFrame(look);
        requestAnimationFrame(() => setTimeout(() => { window.painted = performance.now(); }));
    };
    look();
    const reach = (word) => requestAnimationFrame(() => {
        const { top, bottom } = word.getBoundingClientRect();
        if (top < 0 || bottom > innerHeight) return reach(word);
        setTimeout(() => { window.reached ??= performance.now(); });
    });
    // Not by asking the document for the word in each frame, which would look through all words.
    new MutationObserver((changes) => {
        for (const { target } of changes) if (target.matches(".word.here")) reach(target);
    }).observe(document, { subtree: true, attributes: true, attributeFilter: ["class"] });
"""
_SCROLL = """async () => {
    window.tasks.length = 0;
    let longest = 0, before = performance.now();
    const frame = () => new Promise((next) => requestAnimationFrame(next));
    const step = async () => {
        await frame();
        const now = performance.now();
        longest = Math.max(longest, now - before);
        before = now;
    };
    await step(); longest = 0;
    for (let at = 0; at < 300; at++) { scrollBy(0, 160); await step(); }
    const go = (share) => scrollTo(0, document.documentElement.scrollHeight * share);
    for (let at = 0; at <= 100; at++) { go(at / 100); await step(); }
    for (let at = 0; at < 60; at++) { go((at * 37 % 100) / 100); await step(); }
    await frame();
    return [longest, Math.max(0, ...window.tasks)];
}"""


def long_transcript(job_id: str, words: int, seed: int = 1) -> Transcript:
    """Two speakers in turn, with sentences and every twentieth word in doubt."""
    draw = random.Random(seed)
    record = transcript_of(job_id, tuple(draw.choices(_SAID, k=words)))
    spoken, segments, turns = [], [], []
    first, who = 0, 0
    while first < words:
        last = min(first + draw.randint(12, 60), words) - 1
        label, begins = f"speaker_{who}", first * SECONDS_A_WORD
        for at in range(first, last + 1):
            start_at = round(at * SECONDS_A_WORD, 3)
            spoken.append(
                record.words[at].model_copy(
                    update={
                        "text": record.words[at].text + ("." if at == last else ""),
                        "start": start_at,
                        "end": round(start_at + 0.3, 3),
                        "confidence": 0.3 if draw.random() < 0.05 else 0.95,
                        "speaker": label,
                    }
                )
            )
        ends = spoken[-1].end
        text = " ".join(word.text for word in spoken[first:])
        segments.append(
            Segment(
                start=begins,
                end=ends,
                text=text,
                channel=0,
                first_word=first,
                last_word=last,
                speaker=label,
            )
        )
        turns.append(Turn(start=begins, end=ends, speaker=label))
        first, who = last + 1, 1 - who
    seconds = words * SECONDS_A_WORD
    both = (Speaker(label=f"speaker_{n}", talk_seconds=seconds / 2, words=0) for n in (0, 1))
    speakers = recount_speakers(both, spoken)
    audio = record.audio.model_copy(update={"duration": seconds})
    said: dict[str, Any] = {"words": tuple(spoken), "segments": tuple(segments), "turns": tuple(turns)}
    said |= {"text": " ".join(word.text for word in spoken), "speakers": speakers, "audio": audio}
    return record.model_copy(update=said | {"diarization": DiarizationFacts(name="default", sha256="0")})


def store_long(live: Live, words: int) -> str:
    """A finished job with that transcript, of a recording that cannot be played; its id."""
    services, job_id = live.services, new_id("job")
    source = Source("upload", f"jobs/{job_id}/source")
    services.objects.put_bytes(f"jobs/{job_id}/source", b"RIFF" + bytes(40))
    with services.database.begin() as tx:
        create_job(
            tx, NewJob(id=job_id, source=source, options=JobOptions(model="demo-tdt"), name="long reel.wav")
        )
    claim, record = live.work().claim(job_id), long_transcript(job_id, words)
    stored = services.objects.put_bytes(f"jobs/{job_id}/transcript.1.json", render(record, "json").encode())
    speakers = [
        JobSpeaker(label=one.label, name=None, talk_seconds=one.talk_seconds, words=one.words)
        for one in record.speakers
    ]
    outcome = endings.Outcome(
        record.audio.duration, stored.key, stored.sha256 or "", 1.0, len(record.words), speakers=speakers
    )
    with services.database.begin() as tx:
        endings.finish_job(tx, claim, outcome, passages_of(record))
    return job_id


def measure(browser: Browser, url: str, job_id: str, words: int) -> dict[str, float]:
    """One round, in a browser context of its own."""
    with _page(browser) as page:
        found = _arrive(page, f"{url}/#/jobs/{job_id}", words)
        found["longest task, arriving"] = page.evaluate("Math.max(0, ...window.tasks)")
        found["longest frame, scrolling"], found["longest task, scrolling"] = page.evaluate(_SCROLL)
        found["MB"] = page.evaluate("performance.memory.usedJSHeapSize / 1e6")
        page.goto("about:blank")
        minute = int(words * SECONDS_A_WORD * 0.75)
        page.goto(f"{url}/#/jobs/{job_id}?t={minute}")
        page.wait_for_function("window.reached", timeout=120_000)
        found["link to a time"] = page.evaluate("window.reached")
    return found


def trace(browser: Browser, url: str, job_id: str, words: int) -> dict[str, float]:
    """The longest tasks by the processor time of the page's main thread, in a context of its own."""
    with _page(browser) as page:
        browser.start_tracing(page=page, categories=list(_TRACED))
        _arrive(page, f"{url}/#/jobs/{job_id}", words)
        arriving = _longest_by_processor(browser.stop_tracing())
        browser.start_tracing(page=page, categories=list(_TRACED))
        page.evaluate(_SCROLL)
        scrolling = _longest_by_processor(browser.stop_tracing())
    return {
        "longest by processor time, arriving": arriving,
        "longest by processor time, scrolling": scrolling,
    }


@contextmanager
def _page(browser: Browser) -> Iterator[Page]:
    # Playwright evaluates what it waits for, which the page's policy forbids.
    context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    try:
        page = context.new_page()
        page.add_init_script(_WATCH)
        yield page
    finally:
        context.close()


def _arrive(page: Page, address: str, words: int) -> dict[str, float]:
    page.goto(address)
    page.wait_for_function("window.painted")
    found = {"first words": page.evaluate("window.painted")}
    page.wait_for_function(
        f"document.querySelectorAll('.word[data-word]').length >= {words}", polling=50, timeout=120_000
    )
    found["all words"] = page.evaluate("performance.now()")
    page.wait_for_timeout(500)
    return found


def measure_changed(browser: Browser, live: Live, job_id: str, words: int) -> dict[str, float]:
    """First words where the API has to put the record together: named, corrected, closed in part."""
    found = {}
    with Spool(live.url) as spool:
        changes: dict[str, Callable[[], object]] = {
            "a speaker just named": lambda: spool.name_speakers(job_id, {"speaker_0": "Anna"}),
            "a word just corrected": lambda: spool.edit(job_id, 5, 6, "Okonkwo said"),
            "a minute just closed": lambda: spool.close_to_readers(job_id, start=600, end=660),
            "closed before": lambda: None,
        }
        for name, change in changes.items():
            change()
            with _page(browser) as page:
                arrived = _arrive(page, f"{live.url}/#/jobs/{job_id}", words - int(60 / SECONDS_A_WORD) - 2)
            found[f"first words, {name}"] = arrived["first words"]
    return found


def measure_saving(live: Live, job_id: str, words: int, rounds: int) -> list[dict[str, float]]:
    """Milliseconds of corrections, one after the other."""
    took: list[float] = []
    begun: dict[int, float] = {}
    saving: set[int] = set()

    def note_statement(tx: Connection, cursor: object, statement: str, *rest: object) -> None:
        del cursor, rest
        begun.setdefault(id(tx), time.perf_counter())
        if statement.startswith("INSERT INTO edits"):
            saving.add(id(tx))

    def note_end(tx: Connection) -> None:
        began = begun.pop(id(tx), 0.0)
        if id(tx) in saving:
            saving.discard(id(tx))
            took.append(1000 * (time.perf_counter() - began))

    engine = live.services.database.engine
    event.listen(engine, "before_cursor_execute", note_statement)
    event.listen(engine, "commit", note_end)
    event.listen(engine, "rollback", note_end)
    found = []
    with Spool(live.url) as spool:
        for at in range(rounds):
            word = words * (2 * at + 1) // (2 * rounds)
            began, processor = time.perf_counter(), time.process_time()
            spool.edit(job_id, word, word, "Okonkwo" if at % 2 else f"Ada {at}")
            found.append(
                {
                    "saving a correction": 1000 * (time.perf_counter() - began),
                    "its transaction": took[-1],
                    "processor": 1000 * (time.process_time() - processor),
                }
            )
    return found


def _longest_by_processor(trace: bytes) -> float:
    """Milliseconds of the renderer's main thread in the task that took it longest."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    main = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    tasks = (each for each in events if each["name"].endswith("RunTask") and "tdur" in each)
    return max((each["tdur"] / 1000 for each in tasks if (each["pid"], each["tid"]) in main), default=0.0)


@contextmanager
def _api() -> Iterator[Live]:
    with tempfile.TemporaryDirectory(prefix="spool-page-") as folder:
        home = Path(folder)
        migrations.upgrade(f"sqlite:///{home}/spool.db")
        with EmbeddedRedis(home) as redis:
            settings = load_settings(
                {}, home=home, database_url=f"sqlite:///{home}/spool.db", redis_url=redis.url
            )
            running = start(settings)
            try:
                yield running.live
            finally:
                running.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--saving", action="store_true", help="measure what saving corrections takes")
    wanted = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    once: dict[str, float] = {}
    with _api() as live:
        job_id = store_long(live, wanted.words)
        if wanted.saving:
            rounds = measure_saving(live, job_id, wanted.words, wanted.rounds)
        else:
            rounds, once = _browse(live, job_id, wanted.words, wanted.rounds)
    print(f"{wanted.words} words, {wanted.rounds} rounds | median | worst")
    for name in rounds[0]:
        values = [each[name] for each in rounds]
        print(f"{name} | {statistics.median(values):.0f} | {max(values):.0f}")
    for name, value in once.items():
        print(f"{name}, once | {value:.0f} |")
    if not wanted.saving:
        print(f"targets: first words {TEXT_MS} ms, scrolling {STALL_MS} ms")


def _browse(
    live: Live, job_id: str, words: int, count: int
) -> tuple[list[dict[str, float]], dict[str, float]]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=which("chromium"), args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        rounds = [measure(chromium, live.url, job_id, words) for _ in range(count)]
        once = trace(chromium, live.url, job_id, words)
        once |= measure_changed(chromium, live, job_id, words)
        chromium.close()
    return rounds, once


if __name__ == "__main__":
    main()
