"""Transcripts that were put together are kept for a while, and only as long as they are what they were."""

import httpx
import pytest

from api.presenters import rendered
from api.presenters.rendered import RenderedTranscripts
from ops.testbed.running_api import Live
from spool import clock
from spool.client import Spool
from tests.page.test_speakers import job_with_speakers


def made(kept: RenderedTranscripts, identity: str, content: bytes) -> bool:
    """Whether it had to be made."""
    asked = []

    def render() -> bytes:
        asked.append(identity)
        return content

    assert kept.get(identity, render) == content
    return bool(asked)


def test_a_long_one_is_made_once_a_short_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "LEAST_BYTES", 10)
    kept = RenderedTranscripts()
    assert [made(kept, "long", b"0123456789") for _ in range(3)] == [True, False, False]
    assert [made(kept, "short", b"012345678") for _ in range(2)] == [True, True]


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "LEAST_BYTES", 1)
    monkeypatch.setattr(rendered, "MOST_BYTES", 10)
    kept = RenderedTranscripts()
    assert [made(kept, name, b"01234") for name in "abc"] == [True] * 3
    assert [made(kept, name, b"01234") for name in "cba"] == [False, False, True]
    assert made(kept, "too large", b"01234567890")
    assert made(kept, "too large", b"01234567890")
    assert not made(kept, "a", b"01234"), "what is not kept displaces nothing"


def test_nothing_is_kept_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "LEAST_BYTES", 1)
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    kept = RenderedTranscripts()
    assert made(kept, "a", b"words")
    now[0] += rendered.KEPT_SECONDS + 1
    assert made(kept, "b", b"words")
    assert list(kept._kept) == ["b"]


def test_names_corrections_and_closures_are_in_the_next_answer(
    http: httpx.Client, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendered, "LEAST_BYTES", 1)
    job_id = job_with_speakers(live)
    path = f"/v1/jobs/{job_id}/transcript"
    with Spool(live.url) as spool:
        spool.name_speakers(job_id, {"speaker_0": "Ærø"})
        assert "Ærø" in http.get(path).text
        spool.name_speakers(job_id, {"speaker_0": "Bo"})
        assert "Ærø" not in http.get(path).text
        spool.edit(job_id, 0, 0, "Corrected")
        corrected = http.get(path)
        assert corrected.json()["words"][0]["text"] == "Corrected"
        spool.close_to_readers(job_id, start=0, end=19)
        closed = http.get(path)
        assert "Corrected" not in closed.text
        assert http.get(path).content == closed.content
        assert len(live.services.rendered._kept) == 1
        assert http.get(path, params={"closed": "true"}).json()["words"] == corrected.json()["words"]
        assert "Corrected" not in http.get(path).text
