import pytest

from ops.testbed.running_api import transcript_of
from spool.domain import Transcript
from spool.errors import InvalidRequest
from spool.formats import DIGIT_LANGUAGES, render, with_digits

SPOKEN = "he paid twenty five dollars on the third day and none of us knew"


@pytest.fixture
def record() -> Transcript:
    return transcript_of("job_1", tuple(SPOKEN.split()))


def test_a_number_takes_the_time_of_its_words(record: Transcript) -> None:
    shown = with_digits(record, "en")
    assert shown.text == "he paid $25 on the 3rd day and none of us knew"
    by_text = {word.text: word for word in shown.words}
    assert (by_text["$25"].start, by_text["$25"].end) == (record.words[2].start, record.words[4].end)
    assert by_text["on"] == record.words[5]
    assert not any(word.corrected for word in shown.words)
    assert shown.corrections == ()
    assert "paid $25 on" in render(shown, "srt")
    assert [line.split()[4] for line in render(shown, "ctm").splitlines()] == shown.text.split()


@pytest.mark.parametrize(
    ("language", "spoken", "shown"),
    [
        ("de", "es kamen siebenundzwanzig", "es kamen 27"),
        ("fr", "quatre-vingt-dix-sept personnes", "97 personnes"),
        ("es", "treinta y dos casas", "32 casas"),
    ],
)
def test_other_languages_are_read(language: str, spoken: str, shown: str) -> None:
    record = transcript_of("job_1", tuple(spoken.split())).model_copy(update={"language": language})
    assert with_digits(record, "auto").text == shown
    assert language in DIGIT_LANGUAGES


def test_a_language_that_is_not_known_is_refused(record: Transcript) -> None:
    with pytest.raises(InvalidRequest, match="does not state its language; choose one of da, de, en"):
        with_digits(record, "auto")
    with pytest.raises(InvalidRequest, match="'pl' is not supported"):
        with_digits(record, "pl")
