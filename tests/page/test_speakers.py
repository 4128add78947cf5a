"""Speakers on the page: read with and without colour, filtered, named in place, asked for again."""

import io
from array import array
from typing import Any

import soundfile
from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live, transcript_of
from spool.domain import (
    Diarization,
    DiarizationFacts,
    JobOptions,
    JobSpeaker,
    Segment,
    Source,
    Speaker,
    Transcript,
    Turn,
)
from spool.formats import render
from spool.ids import new_id
from spool.store import NewJob, create_job, list_voices, name_speakers, write_prints
from spool.store.queue import endings

expect.set_options(timeout=60_000)
TURNS = (
    "I went to the harbour before it was light",
    "what did you see there",
    "nothing but fog and the lamp of the old ferry",
    "we had heard the horn from the hill",
    "and the ferry",
    "it never came back",
)
ONE_PRINT = array("f", [1.0, 0.0]).tobytes()
WHO = (0, 1, 0, 2, 1, 0)


def conversation(job_id: str) -> Transcript:
    """Three people, turn by turn; one word is spoken over."""
    words: list[Any] = []
    segments: list[Any] = []
    turns: list[Any] = []
    record = transcript_of(job_id, tuple(" ".join(TURNS).split()))
    for text, who in zip(TURNS, WHO, strict=True):
        first = len(words)
        words += [
            word.model_copy(update={"speaker": f"speaker_{who}", "overlap": word.text == "horn"})
            for word in record.words[first : first + len(text.split())]
        ]
        start, end, label = words[first].start, words[-1].end, f"speaker_{who}"
        last = len(words) - 1
        segments.append(
            Segment(
                start=start, end=end, text=text, channel=0, first_word=first, last_word=last, speaker=label
            )
        )
        turns.append(Turn(start=start, end=end, speaker=label))
    speakers = tuple(
        Speaker(
            label=f"speaker_{n}",
            talk_seconds=sum(turn.end - turn.start for turn in turns if turn.speaker == f"speaker_{n}"),
            words=sum(word.speaker == f"speaker_{n}" for word in words),
        )
        for n in range(3)
    )
    spoken = {"words": tuple(words), "segments": tuple(segments), "turns": tuple(turns)}
    return record.model_copy(
        update=spoken | {"speakers": speakers, "diarization": DiarizationFacts(name="default", sha256="0")}
    )


def job_with_speakers(live: Live) -> str:
    services, job_id = live.services, new_id("job")
    sound = io.BytesIO()
    soundfile.write(sound, [0.0, 0.25] * 60_000, 8000, format="WAV", subtype="PCM_16")
    services.objects.put_bytes(f"jobs/{job_id}/source", sound.getvalue())
    source = Source("upload", f"jobs/{job_id}/source")
    options = JobOptions(model="demo-tdt", diarization=Diarization())
    with services.database.begin() as tx:
        create_job(tx, NewJob(id=job_id, source=source, options=options, name="harbour.wav"))
    claim, record = live.work().claim(job_id), conversation(job_id)
    key = f"jobs/{job_id}/attempt-1/transcript.json"
    stored = services.objects.put_bytes(key, render(record, "json").encode())
    speakers = [
        JobSpeaker(label=each.label, name=None, talk_seconds=each.talk_seconds, words=each.words)
        for each in record.speakers
    ]
    with services.database.begin() as tx:
        outcome = endings.Outcome(
            record.audio.duration, key, stored.sha256 or "", 1.0, len(record.words), speakers=speakers
        )
        endings.finish_job(tx, claim, outcome)
    return job_id


def test_speakers_are_told_apart_by_letter_name_and_row(page: Page, live: Live) -> None:
    page.goto(f"/#/jobs/{job_with_speakers(live)}")
    expect(page.locator(".segment .who")).to_have_text(
        ["ASpeaker 1", "BSpeaker 2", "ASpeaker 1", "CSpeaker 3", "BSpeaker 2", "ASpeaker 1"]
    )
    bar = page.get_by_role("img", name="Who speaks when")
    expect(bar.locator("rect")).to_have_count(len(TURNS))
    rows = bar.locator("rect").evaluate_all("all => all.map((one) => one.getAttribute('y'))")
    assert len(set(rows)) == 3, "a row for each, so that it reads without colour"
    assert rows[0] == rows[2] == rows[5]
    expect(page.locator(".word.overlap")).to_have_text(["horn"])
    box = bar.bounding_box()
    assert box is not None
    bar.click(position={"x": box["width"] * 0.5, "y": box["height"] * 0.5})
    page.wait_for_function("document.querySelector('audio').currentTime >= 6")


def test_one_speaker_s_words_are_shown_alone(page: Page, live: Live) -> None:
    page.goto(f"/#/jobs/{job_with_speakers(live)}")
    chip = page.get_by_role("button", name="Speaker 2", exact=False).first
    chip.click()
    expect(page.locator(".segment:visible")).to_have_count(2)
    expect(chip).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".segment:visible")).to_have_count(len(TURNS))


def test_a_speaker_is_named_in_place(page: Page, live: Live) -> None:
    job_id = job_with_speakers(live)
    page.goto(f"/#/jobs/{job_id}")
    page.get_by_role("button", name="Rename Speaker 1").click()
    page.get_by_label("Name of Speaker 1").fill("<b>Ada</b>")
    page.keyboard.press("Enter")
    expect(page.locator(".segment .who").first).to_have_text("A<b>Ada</b>")
    expect(page.locator(".segment [data-who=speaker_0]")).to_have_text(["<b>Ada</b>"] * 3)
    page.reload()
    expect(page.get_by_role("button", name="Rename <b>Ada</b>")).to_be_visible()
    page.get_by_role("button", name="Rename Speaker 3").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Rename Speaker 3")).to_be_visible()


def test_a_voice_that_was_named_before_is_confirmed_by_one_press(page: Page, live: Live) -> None:
    before, job_id = job_with_speakers(live), job_with_speakers(live)
    with live.services.database.begin() as tx:
        write_prints(tx, before, "e", {"speaker_1": ONE_PRINT})
        name_speakers(tx, before, {"speaker_1": "Ada Lund"}, remember=True)
        write_prints(tx, job_id, "e", {"speaker_0": ONE_PRINT})
    page.goto(f"{live.url}/#/jobs/{job_id}")
    page.get_by_role("button", name="Ada Lund?").click()
    expect(page.get_by_role("button", name="Rename Ada Lund")).to_be_visible()
    expect(page.get_by_role("button", name="Ada Lund?")).to_have_count(0)
    with live.services.database.read() as tx:
        assert [voice.recordings for voice in list_voices(tx)] == [2]


def test_speakers_are_asked_for_again_by_a_dialog(page: Page, live: Live) -> None:
    job_id = job_with_speakers(live)
    page.goto(f"/#/jobs/{job_id}")
    page.get_by_role("button", name="Find speakers again").click()
    page.get_by_label("Number of speakers").fill("2")
    page.get_by_role("button", name="Find speakers", exact=True).click()
    expect(page.locator(".about .state.queued")).to_be_visible()
    expect(page.locator(".segment").first).to_contain_text(TURNS[0])
    page.reload()
    expect(page.locator(".segment").first).to_contain_text(TURNS[0])
    worker = live.work()
    worker.finish(job_id)
    expect(page.locator(".about .state.done")).to_be_visible()
    expect(page.locator(".segment").first).to_be_visible()


def test_speakers_fit_on_a_phone(page: Page, live: Live) -> None:
    page.set_viewport_size({"width": 375, "height": 720})
    page.goto(f"/#/jobs/{job_with_speakers(live)}")
    expect(page.locator(".segment .who")).to_have_count(len(TURNS))
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
