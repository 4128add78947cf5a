"""Watched folders on the page, and where a job's files went."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live, file_job
from spool.settings import Settings
from tests.api.auth.keys import post
from tests.page.accessible import find_faults

OLD = 1_700_000_000
expect.set_options(timeout=60_000)


@pytest.fixture
def live(
    settings: Settings, tmp_path: Path, start_api: Callable[[Settings], Live], monkeypatch: pytest.MonkeyPatch
) -> Live:
    for name in ("api.watching.watcher.LOOK_S", "spool.background.exporter.LOOK_S"):
        monkeypatch.setattr(name, 0.05)
    (tmp_path / "theirs").mkdir()
    prefix = f"{(tmp_path / 'theirs').resolve().as_uri()}/"
    return start_api(settings.model_copy(update={"output_prefixes": (prefix,)}))


def test_a_source_says_what_it_took_and_skipped_and_is_paused(
    page: Page, live: Live, recordings: Path
) -> None:
    os.utime(recordings / "reel 1.wav", (OLD, OLD))
    (recordings / "notes.txt").write_text("not audio")
    os.utime(recordings / "notes.txt", (OLD, OLD))
    page.goto("/#/sources")
    expect(page.get_by_text("No folder or bucket is watched yet.")).to_be_visible()
    body = {"source": f"{recordings.as_uri()}/", "name": "Incoming"}
    assert post(f"{live.url}/v1/sources", json=body).status_code == 201
    page.get_by_role("link", name="Incoming").click()
    expect(page.get_by_role("cell", name="reel 1.wav")).to_be_visible()
    expect(page.get_by_role("row", name="notes.txt")).to_contain_text("not audio")
    assert find_faults(page, "a source") == []
    page.get_by_role("link", name="skipped 1").click()
    expect(page.get_by_role("cell", name="reel 1.wav")).to_have_count(0)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".state.paused")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".state.watching")).to_be_visible()
    page.get_by_role("button", name="Change").click()
    page.get_by_label("Listed every").fill("60")
    assert find_faults(page, "its dialog") == []
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_text("every 60 s")).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("No folder or bucket is watched yet.")).to_be_visible()


def test_a_job_says_where_its_files_are(page: Page, live: Live, recordings: Path, tmp_path: Path) -> None:
    prefix = live.settings.output_prefixes[0]
    asked = file_job(recordings, output={"prefix": prefix, "formats": ["srt", "rttm"]})
    job = str(post(f"{live.url}/v1/jobs", json=asked).json()["id"])
    live.work().finish(job)
    page.goto(f"/#/jobs/{job}")
    expect(page.get_by_text(f"rttm could not be written below {prefix}")).to_be_visible()
    page.get_by_role("button", name="Details", exact=True).click()
    expect(page.locator("dl code", has_text="reel%201.wav.srt")).to_be_visible()
    assert (tmp_path / "theirs" / "reel 1.wav.srt").exists()
