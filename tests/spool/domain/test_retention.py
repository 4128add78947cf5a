"""How long things are kept: how it is written, and who it goes for."""

from datetime import timedelta

import pytest

from spool.domain import Content, Retention, content_of, rule_for
from spool.errors import SettingsError
from spool.settings import load_settings


def rules(text: str) -> dict[str, Retention]:
    return load_settings({"SPOOL_RETENTION": text}).retention


def test_rules_are_written_short_or_as_json() -> None:
    short = rules("oral-history=keep/5y, court=30d,*=12h/8w")
    assert short["oral-history"] == Retention(source=None, transcript=timedelta(days=5 * 365))
    assert short["court"] == Retention(source=timedelta(days=30), transcript=timedelta(days=30))
    assert short == rules(
        '{"oral-history": {"transcript": "5y"}, "court": "30d/30d",'
        ' "*": {"source": "12h", "transcript": "8w"}}'
    )
    assert rule_for(short, "court").of(Content.SOURCE) == timedelta(days=30)
    assert rule_for(short, "radio").of(Content.TRANSCRIPT) == timedelta(weeks=8)


def test_nothing_is_deleted_unless_said() -> None:
    assert rule_for({}, "court") == Retention() == rule_for(rules("radio=1d"), "court")
    assert Retention().of(Content.SOURCE) is None


@pytest.mark.parametrize("text", ["court=soon", "court=0d", "court=30", "court=30d/", "court=-1d", "court"])
def test_what_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="SPOOL_RETENTION"):
        rules(text)


def test_objects_are_told_apart() -> None:
    assert content_of("jobs/job_1/source") is Content.SOURCE
    for key in ("jobs/job_1/attempt-1/transcript.json", "jobs/job_1/attempt-2/source", "jobs/source/x"):
        assert content_of(key) is Content.TRANSCRIPT
