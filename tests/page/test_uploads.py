"""Large recordings go from the browser to the bucket, and none is lost where the link or the bucket fails."""

# ruff: noqa: F811 - fixtures are imported by name

import json
import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import select

from api.submission import direct
from ops.testbed.faulty_s3 import Rule
from ops.testbed.running_api import Live
from ops.testbed.s3 import S3Server
from spool.settings import Settings
from spool.store import get_job
from spool.tables import uploads
from spool.tables.uploads import key_of
from tests.live.guarded_s3 import GuardedS3
from tests.live.past_the_api import PART, bucket, no_sweeps, past_the_api, proxy  # noqa: F401 - fixtures

expect.set_options(timeout=60_000)
BODY = os.urandom(1024) * (1024 * 17 + 100)
"""Four parts, and more than the page sends through the API."""

pytestmark = pytest.mark.usefixtures("no_sweeps")


@pytest.fixture
def settings(
    settings: Settings, s3_server: S3Server, bucket: str, proxy: GuardedS3, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    monkeypatch.setattr(direct, "PART_BYTES", PART)
    return past_the_api(settings, s3_server, f"s3://{bucket}", proxy.url, 40 * 2**20)


DOCS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.fixture(autouse=True)
def cors_rule_of_the_docs(live: Live, s3_server: S3Server, bucket: str) -> None:
    """The bucket has the rule that the docs give operators, for the origin at which the page is opened."""
    command = re.search(r"put-bucket-cors .*?--cors-configuration '(.*?)'", DOCS.read_text(), re.DOTALL)
    assert command is not None
    rules = json.loads(command[1].replace("https://spool.example.org", live.url))
    s3_server.client().put_bucket_cors(Bucket=bucket, CORSConfiguration=rules)


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "tape ü.wav"
    path.write_bytes(BODY)
    return path


def states(live: Live) -> list[str]:
    with live.services.database.read() as tx:
        return sorted(tx.scalars(select(uploads.c.state)))


def choose(page: Page, *tapes: Path) -> None:
    page.get_by_role("link", name="Submit", exact=True).click()
    page.locator("#files").set_input_files(tapes)
    page.get_by_role("button", name=re.compile("^Submit ")).click()


def assert_stored(page: Page, live: Live) -> None:
    """The page shows a job, whose recording is the file to the last byte."""
    expect(page.get_by_role("heading", name="tape ü.wav")).to_be_visible()
    job_id = page.url.rpartition("/")[2]
    with live.services.database.read() as tx:
        job = get_job(tx, job_id)
    with live.services.objects.open(key_of(job_id)) as stream:
        assert stream.read() == BODY
    assert (job.name, job.source.kind, job.source.size) == ("tape ü.wav", "upload", len(BODY))


def puts(page: Page, proxy: GuardedS3) -> list[str]:
    """Fills with the parts that the page sends to the bucket."""
    sent: list[str] = []
    page.on(
        "request",
        lambda asked: (
            sent.append(asked.url) if asked.method == "PUT" and asked.url.startswith(proxy.url) else None
        ),
    )
    return sent


def test_a_large_file_goes_straight_to_the_bucket(
    page: Page, live: Live, proxy: GuardedS3, tape: Path
) -> None:
    slow = Rule("PUT", "partNumber=", times=99, delay=0.5)
    proxy.rules.append(slow)
    through_the_api: list[int] = []
    page.on(
        "request",
        lambda asked: (
            through_the_api.append(len(asked.post_data_buffer or b""))
            if asked.url.startswith(live.url)
            else None
        ),
    )
    page.goto("/")
    choose(page, tape)
    expect(page.get_by_text("Sending: ")).to_contain_text("of 18 MB")
    assert_stored(page, live)
    assert slow.used == 4
    assert max(through_the_api) < 1000
    assert states(live) == ["used"]
    with live.services.database.read() as tx:
        assert len(tx.scalars(select(uploads.c.sha256)).one() or "") == 64


def test_after_a_lost_link_and_a_reload_the_same_file_goes_on(
    page: Page, live: Live, proxy: GuardedS3, tape: Path
) -> None:
    proxy.rules.append(Rule("PUT", "partNumber=3", times=99, status=503))
    page.goto("/")
    choose(page, tape)
    expect(page.get_by_text("The connection was lost; trying again: 13 of 18 MB")).to_be_visible()
    page.context.set_offline(True)
    alert = page.get_by_role("main").get_by_role("alert")
    expect(alert).to_contain_text(
        "The connection was lost. What arrived is kept: try again, or choose the same file"
    )
    page.context.set_offline(False)
    proxy.rules.clear()

    page.reload()
    sent = puts(page, proxy)
    choose(page, tape)
    assert_stored(page, live)
    assert len(sent) == 1, "the one that was missing"
    assert states(live) == ["used"]


def test_what_failed_is_tried_again_without_the_rest(
    page: Page, live: Live, proxy: GuardedS3, tape: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small.wav"
    small.write_bytes(b"RIFF")
    proxy.rules.append(Rule("PUT", "partNumber=3", times=99, status=503))
    page.goto("/")
    choose(page, tape, small)
    expect(page.get_by_role("main").get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("main").get_by_text("Submitted", exact=True)).to_be_visible()
    proxy.rules.clear()
    sent = puts(page, proxy)
    page.get_by_role("button", name="Try again").click()
    names = page.locator("main td.name a")
    expect(names).to_have_text(["tape ü.wav", "small.wav"])
    assert len(sent) == 1
    names.first.click()
    assert_stored(page, live)


def test_where_the_bucket_has_no_rule_for_the_page_the_file_goes_through_the_api(
    page: Page, live: Live, tape: Path, s3_server: S3Server, bucket: str
) -> None:
    other = {"AllowedMethods": ["PUT"], "AllowedOrigins": ["https://elsewhere.example.org"]}
    s3_server.client().put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [other]})
    page.add_init_script("""
        new MutationObserver(() => {
            const text = document.body?.textContent ?? "";
            window.wasShown ||= text.includes("Sending through the server, since the bucket takes nothing");
        }).observe(document, { subtree: true, childList: true, characterData: true });
    """)
    page.goto("/")
    choose(page, tape)
    assert_stored(page, live)
    assert page.evaluate("window.wasShown"), "the page says why, if only for a moment"
    assert states(live) == [], "what was begun for the bucket is dropped"


def test_on_a_phone_the_file_in_progress_stays_in_view_with_its_size(
    page: Page, proxy: GuardedS3, tape: Path, tmp_path: Path
) -> None:
    small = [tmp_path / f"reel {number}.wav" for number in range(12)]
    for path in small:
        path.write_bytes(b"RIFF" + bytes(4396))
    proxy.rules.append(Rule("PUT", "partNumber=", times=99, delay=1.0))
    page.set_viewport_size({"width": 390, "height": 664})
    page.goto("/")
    choose(page, *small, tape)
    doing = page.locator(".sending").filter(has_text="tape ü.wav")
    expect(doing).to_contain_text("of 18 MB")
    expect(doing).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    names = page.locator("main td.name a")
    expect(names).to_have_count(13)


@pytest.mark.parametrize(
    ("done", "size", "shown"),
    [
        (0, 300, "0 of 0.3 kB"),
        (2_200, 4_400, "2.2 of 4.4 kB"),
        (1_200_000, 18_000_000, "1 of 18 MB"),
        (10**9, 25 * 10**8, "1 of 2.5 GB"),
    ],
)
def test_sizes_have_the_unit_that_suits_the_file(page: Page, done: int, size: int, shown: str) -> None:
    page.goto("/")
    script = f"import('/page/dom.js').then((dom) => dom.sizes({done}, {size}))"
    assert page.evaluate(script) == shown


def test_a_file_that_changes_meanwhile_says_so(page: Page, live: Live, proxy: GuardedS3, tape: Path) -> None:
    proxy.rules.append(Rule("PUT", "partNumber=4", times=99, status=503))
    page.goto("/")
    choose(page, tape)
    expect(page.get_by_text("The connection was lost; trying again")).to_be_visible()
    tape.write_bytes(b"RIFF" + BODY)
    expect(page.get_by_role("main").get_by_role("alert")).to_contain_text("The file was changed or moved")
