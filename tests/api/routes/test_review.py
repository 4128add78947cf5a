"""The review over HTTP and on the command line: by doubt, filtered, checked, corrected and deleted."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.client import NotFound, Spool
from spool.settings import Settings

pytestmark = pytest.mark.integration

WORDS = ("keep", "the", "light", "burning")
Done = Callable[..., str]
both = pytest.mark.parametrize("live", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def live(request: pytest.FixtureRequest, settings: Settings, start_api: Callable[[Settings], Live]) -> Live:
    changed: dict[str, str] = {}
    if getattr(request, "param", "") == "postgresql":
        changed["database_url"] = request.getfixturevalue("postgres_url")
    return start_api(settings.model_copy(update=changed))


@pytest.fixture
def done(live: Live, http: httpx.Client, recordings: Path) -> Done:
    def job(words: tuple[str, ...] = WORDS, **also: object) -> str:
        job_id = str(http.post("/v1/jobs", json=file_job(recordings) | also).json()["id"])
        live.work().finish(job_id, words)
        return job_id

    return job


@both
def test_passages_come_by_doubt_a_page_at_a_time(http: httpx.Client, live: Live, done: Done) -> None:
    ids = [done(project="alpha"), done(project="beta", tags={"reel": "1"})]
    live.work().finish(
        again := str(http.post(f"/v1/jobs/{ids[0]}/rerun", json={}).json()["id"]),
        ("keep", "the", "lamp", "on"),
    )
    with Spool(live.url) as spool:
        newest = list(spool.review())
        assert [each.job for each in newest] == [again, ids[1]], "what was run again is not listed twice"
        assert newest[0].doubts.versions == 0.5
        passages = list(spool.review(versions="all"))
        assert passages[0] == newest[0]
        assert {each.job for each in passages[1:]} == set(ids)
        assert [each.job for each in spool.review(job=ids[0])] == [ids[0]]
        assert not list(spool.review(job=ids[0], versions="newest"))
        assert [each.job for each in spool.review(reason="versions")] == [again]
        assert [each.job for each in spool.review(tag="reel=1")] == [ids[1]]
        assert [each.job for each in spool.review(project="alpha", model="demo-tdt")] == [again]
        assert not list(spool.review(model="another"))
        first = spool.review_page(limit=2, versions="all")
        rest = spool.review_page(limit=2, cursor=first.next_cursor, versions="all")
        assert [*first.items, *rest.items] == passages
        assert rest.next_cursor is None
        assert {each.job for each in spool.search("keep")} == {*ids, again}
        assert {each.job for each in spool.search("keep", versions="newest")} == {ids[1], again}
        spool.delete_content(again)
        assert {each.job for each in spool.review()} == set(ids), "the newest that is left"
    problem(
        http.get("/v1/review", params={"cursor": first.next_cursor, "tag": "reel"}), 422, "invalid_request"
    )
    problem(http.get("/v1/review", params={"reason": "mood"}), 422, "invalid_request")


@both
def test_recordings_are_ranked_by_what_nobody_checked(http: httpx.Client, live: Live, done: Done) -> None:
    first, other = done(project="alpha"), done(project="beta", tags={"reel": "1"})
    again = str(http.post(f"/v1/jobs/{first}/rerun", json={}).json()["id"])
    live.work().finish(again, ("keep", "the", "lamp", "on"))
    with Spool(live.url) as spool:
        ranked = list(spool.review_recordings())
        assert [each.job for each in ranked] == [again, other], "a recording stands there once"
        [passage] = spool.review(job=again)
        assert (ranked[0].doubt, ranked[0].doubts) == (passage.doubt, passage.doubts)
        assert (ranked[0].passages, ranked[0].unchecked) == (1, 1)
        start = spool.review_recordings_page(limit=1)
        rest = spool.review_recordings_page(limit=1, cursor=start.next_cursor)
        assert [*start.items, *rest.items] == ranked
        assert rest.next_cursor is None
        assert [each.job for each in spool.review_recordings(reason="versions")] == [again]
        assert [each.job for each in spool.review_recordings(tag="reel=1")] == [other]
        assert [each.job for each in spool.review_recordings(project="beta", model="demo-tdt")] == [other]
        assert not list(spool.review_recordings(model="another"))
        spool.check_passage(again, 0, author="Bo")
        assert [each.job for each in spool.review_recordings()] == [other]
        spool.check_passage(again, 0, checked=False)
        assert list(spool.review_recordings()) == ranked
        spool.edit(other, 2, 2, "lamp")
        assert [each.job for each in spool.review_recordings()] == [again]
        spool.delete_content(again)
        assert [each.job for each in spool.review_recordings()] == [first], "the newest that is left"
    problem(http.get("/v1/review/recordings", params={"reason": "mood"}), 422, "invalid_request")
    page = {"cursor": start.next_cursor, "tag": "reel"}
    problem(http.get("/v1/review/recordings", params=page), 422, "invalid_request")


@both
def test_people_who_check_one_recording_at_once_are_both_counted(live: Live, done: Done) -> None:
    job_id = done(words=tuple(f"word{at}" for at in range(400)))
    with Spool(live.url) as spool:
        numbers = [each.passage for each in spool.review(job=job_id)]
        assert len(numbers) == 10

        def check(number: int) -> None:
            with Spool(live.url) as own:
                own.check_passage(job_id, number)

        with ThreadPoolExecutor(4) as people:
            list(people.map(check, numbers[1:]))
        [ranked] = spool.review_recordings()
        [passage] = spool.review(job=job_id)
        assert (ranked.passages, ranked.unchecked) == (10, 1)
        length = 0.5 * passage.doubt
        assert ranked.doubt <= length


@both
def test_what_somebody_checked_or_corrected_is_done(http: httpx.Client, live: Live, done: Done) -> None:
    checked, corrected = done(), done()
    with Spool(live.url) as spool:
        assert spool.check_passage(checked, 0, author="Bo").checked_by == "Bo"
        spool.edit(corrected, 2, 2, "lamp", author="Ada")
        assert not list(spool.review())
        assert {each.checked_by for each in spool.review(checked=True)} == {"Bo", "Ada"}
        assert spool.check_passage(checked, 0, checked=False).checked_at is None
        assert [(each.job, each.text) for each in spool.review()] == [(checked, "keep the light burning")]
        with pytest.raises(NotFound, match="no passage 7"):
            spool.check_passage(checked, 7)
        with pytest.raises(NotFound, match="There is no job"):
            spool.check_passage("job_01M7ZZZZZZZZZZZZZZZZZZZZZZ", 0)
        spool.delete_content(checked)
        assert not list(spool.review())
    problem(http.post(f"/v1/jobs/{checked}/passages/0/check", json={}), 410, "deleted")


def test_the_command_lists_and_checks(live: Live, done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))

    def spool(*arguments: str, code: int = 0) -> str:
        ran = invoke(main, arguments)
        assert ran.exit_code == code, ran
        return ran.output

    job_id = done()
    assert "keep the light burning" in spool("review", "list", "--job", job_id)
    assert "1 of 1 passages to check  confidence" in spool("review", "recordings")
    assert "checked by Bo" in spool("review", "check", job_id, "0", "--author", "Bo")
    assert "nothing to review" in spool("review", "list")
    assert "nothing to review" in spool("review", "recordings")
    assert "checked by Bo" in spool("review", "list", "--checked")
    assert 'Choose from: "confidence"' in spool("review", "list", "--reason", "mood", code=2)


@both
def test_a_sample_says_the_error_rate_once_people_checked_it(
    http: httpx.Client, live: Live, done: Done
) -> None:
    ids = [done(project="alpha") for _ in range(4)]
    done(project="beta")
    with Spool(live.url) as spool:
        # What was transcribed again counts once.
        ids[0] = spool.rerun(ids[0]).id
        live.work().finish(ids[0])
        assert spool.sample_size(project="alpha").passages == 4
        assert spool.sample_size(project="gamma").population == 0
        drawn = spool.draw_sample(project="alpha", passages=3, seed=7, author="Bo")
        again = spool.draw_sample(project="alpha", passages=3, seed=7)
        assert (drawn.size, drawn.population, drawn.estimate.rate) == (3, 4, None)
        passages = [(each.job, each.passage) for each in spool.review(sample=drawn.id)]
        assert len(passages) == 3
        assert {job for job, _ in passages} < set(ids)
        assert [(each.job, each.passage) for each in spool.review(sample=again.id)] == passages
        spool.edit(passages[0][0], 2, 2, "lamp")
        spool.check_passage(*passages[1])
        found = spool.sample(drawn.id).estimate
        assert (found.checked, found.errors, found.words, found.rate) == (2, 1, 8, 0.125)
        assert found.high is not None
        assert found.high > 0.125
        spool.undo_edit(passages[0][0], 1)
        assert spool.sample(drawn.id).by_model["demo-tdt"].errors == 0
        spool.delete_content(passages[2][0])
        assert spool.sample(drawn.id).gone == 1
        assert {each.id for each in spool.samples(project="alpha")} == {drawn.id, again.id}
    problem(http.post("/v1/review/samples", json={"project": "gamma"}), 409, "conflict")
    problem(http.post("/v1/review/samples", json={"margin": 0}), 422, "invalid_request")
    problem(http.get("/v1/review/samples/smp_1"), 404, "not_found")
    problem(http.get("/v1/review/size", params={"batch": "bat_1"}), 404, "not_found")
