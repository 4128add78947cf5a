"""The receipt of a recording on the page: what it states, its files, and how to check it."""

import os
from pathlib import Path

from playwright.sync_api import Page, expect

from ops.testbed.running_api import Live
from spool.client import Spool
from spool.settings.signing_key import check_receipt
from tests.page.test_spread import record

expect.set_options(timeout=60_000)


def test_a_receipt_is_shown_and_its_files_check(page: Page, live: Live, tmp_path: Path) -> None:
    job_id = record(live, "reel-1.wav", "keep the light")
    page.goto(f"/#/jobs/{job_id}")
    page.get_by_role("button", name="Details", exact=True).click()
    page.get_by_role("button", name="Show the receipt").click()
    with Spool(live.url) as spool:
        data = spool.receipt(job_id)
        recorded = spool.transcript_file(job_id, "json", recorded=True)
    files = {}
    for name in ("Receipt (.json)", "Public keys (.pem)", "Transcript (.json)"):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        files[name] = Path(download.value.path()).read_bytes()
    receipt = check_receipt(files["Receipt (.json)"], [files["Public keys (.pem)"]])
    assert (files["Receipt (.json)"], files["Transcript (.json)"]) == (data, recorded)
    shown = page.locator(".receipt")
    expect(shown).to_contain_text(receipt.statement.transcript_sha256)
    expect(shown).to_contain_text(receipt.signature.key_id)
    page.get_by_text("How to check it").click()
    expect(shown).to_contain_text(f"spool verify {job_id} --sample 1%")
    for width, scheme in ((1280, "light"), (390, "light"), (1280, "dark"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        shown.scroll_into_view_if_needed()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if shots := os.environ.get("SHOTS"):
            page.screenshot(path=Path(shots) / f"receipt-{width}-{scheme}.png")
    page.get_by_role("button", name="Close the details").click()
    with Spool(live.url) as spool:
        spool.close_to_readers(job_id, start=0, end=0.5)
    page.reload()
    page.get_by_role("button", name="Details", exact=True).click()
    page.get_by_role("button", name="Show the receipt").click()
    expect(page.locator("#notices")).to_contain_text("Its receipt requires opening that")
