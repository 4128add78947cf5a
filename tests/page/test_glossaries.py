"""Glossaries on the page: made, grown from corrections, looked at by version, deleted."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live, file_job
from tests.api.auth.keys import post
from tests.page.accessible import find_faults

pytestmark = pytest.mark.integration
expect.set_options(timeout=60_000)
ARPA = b"\\data\\\nngram 1=2\n\n\\1-grams:\n-99\t<s>\n-1\t</s>\n\n\\end\\\n"


def test_a_name_from_a_correction_is_taken_into_a_glossary(page: Page, live: Live, recordings: Path) -> None:
    job = str(post(f"{live.url}/v1/jobs", json=file_job(recordings)).json()["id"])
    live.work().finish(job, ("near", "helga", "land"))
    edit = {"first_word": 1, "last_word": 2, "text": "<B>Heligoland", "seen": 0}
    assert post(f"{live.url}/v1/jobs/{job}/edits", json=edit).status_code == 201
    page.goto("/#/glossaries")
    expect(page.get_by_text("There are no glossaries yet.")).to_be_visible()
    page.get_by_label("Glossary (").fill("islands")
    page.get_by_label("Phrases, one per line").fill("Amrum\nSylt")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("heading", name="islands@1")).to_be_visible()
    assert find_faults(page, "a glossary") == []
    page.get_by_role("button", name="Add B>Heligoland").click()
    expect(page.get_by_role("heading", name="islands@2")).to_be_visible()
    expect(page.locator("ul.phrases li")).to_have_text(["Amrum", "B>Heligoland", "Sylt"])
    expect(page.get_by_role("heading", name="Names from corrections")).to_have_count(0)
    page.get_by_role("link", name="1", exact=True).click()
    expect(page.locator("ul.phrases li")).to_have_text(["Amrum", "Sylt"])
    page.get_by_role("link", name="Glossaries").click()
    page.get_by_role("link", name="islands").click()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete the glossary").click()
    expect(page.get_by_text("There are no glossaries yet.")).to_be_visible()


def test_language_models_are_listed_and_deleted(page: Page, live: Live) -> None:
    form = {"request": (None, '{"name": "parish", "model": "demo-tdt"}'), "file": ("a.arpa", ARPA)}
    assert post(f"{live.url}/v1/language-models", files=form).status_code == 201
    page.goto("/#/glossaries")
    row = page.get_by_role("row").filter(has_text="parish")
    expect(row).to_contain_text("demo-tdt")
    page.on("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Delete parish").click()
    expect(page.get_by_text("There are no language models.")).to_be_visible()
