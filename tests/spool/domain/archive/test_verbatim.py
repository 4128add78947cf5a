"""Fillers, doubled words and false starts: what is marked, what is left alone, and that no word is lost."""

from datetime import UTC, datetime

import pytest

from ops.testbed.running_api import transcript_of
from spool.domain import (
    Edit,
    LanguageSpan,
    Transcript,
    apply_edits,
    leave_out,
    mark_disfluencies,
    passages_of,
)


def spoken(text: str, language: str | None = "en") -> Transcript:
    return transcript_of("job_1", tuple(text.split())).model_copy(update={"language": language})


def left(transcript: Transcript) -> str:
    return mark_disfluencies(transcript, "omit").text


@pytest.mark.parametrize(
    ("language", "said", "shown"),
    [
        ("en", "Um, I think, uh, the boat hmm sank", "I think, the boat sank"),
        ("en", "the the lamp and the, the keeper", "the lamp and the keeper"),
        ("en", "the uh the lamp", "the lamp"),
        ("en", "I- I went to the li- lighthouse", "I went to the lighthouse"),
        ("de", "Er ging ähm um um sieben, ich ich glaube", "Er ging um um sieben, ich glaube"),
        ("fr", "je euh je crois que le le phare", "je crois que le phare"),
        ("es", "el el faro ehm brilla", "el faro brilla"),
        ("it", "il il faro ehm brilla", "il faro brilla"),
        ("nl", "de de toren euh brandt", "de toren brandt"),
    ],
)
def test_what_means_nothing_is_left_out(language: str, said: str, shown: str) -> None:
    assert left(spoken(said, language)) == shown


@pytest.mark.parametrize(
    "said",
    [
        "he had had occasion to say that that was very very strange",
        "two two eight seven nine nine",
        "the more I know about you you have peace",
        "no no, come come",
        "what it is made of of course",
        "like, you know, well, oh, ah, uh-huh",
        "the ER in UM and the HM Treasury",
        "a two- and three-year plan of pre- and post-war houses",
        "who are they? They left.",
    ],
)
def test_what_may_be_meant_stays(said: str) -> None:
    assert left(spoken(said)) == said


def test_words_far_apart_are_not_doubled() -> None:
    record = spoken("and and")
    later = record.words[1].model_copy(update={"start": 9.0, "end": 9.4})
    assert left(record.model_copy(update={"words": (record.words[0], later)})) == "and and"


def test_every_word_stays_in_the_record_with_its_time() -> None:
    record = spoken("um the the lamp we- went out")
    for how in ("mark", "omit"):
        marked = mark_disfluencies(record, how)
        assert [(word.text, word.start, word.end) for word in marked.words] == [
            (word.text, word.start, word.end) for word in record.words
        ]
        assert [word.disfluency for word in marked.words] == [
            "filler", "repetition", None, None, "false_start", None, None,
        ]  # fmt: skip
        assert marked.segments[0].last_word == record.segments[0].last_word
        assert passages_of(marked) == passages_of(record), "the search finds every word"
        assert mark_disfluencies(marked, "keep").words == record.words
    assert mark_disfluencies(record, "mark").text == record.text
    assert marked.segments[0].text == marked.text == "the lamp went out"
    shown = leave_out(marked)
    assert [(word.text, word.start) for word in shown.words] == [
        (word.text, word.start)
        for word in record.words
        if word.text not in {"um", "we-"} and word.start != 0.5
    ]
    assert shown.segments[0].last_word == len(shown.words) - 1


def test_what_a_person_writes_is_shown() -> None:
    marked = mark_disfluencies(spoken("um the the lamp"), "omit")
    edit = Edit(1, 0, 1, "Um, well", None, "Bo", datetime(2026, 11, 28, tzinfo=UTC))
    corrected = apply_edits(marked, [edit])
    assert corrected.text == "Um, well the lamp"
    assert corrected.corrections[0].original == "um the"
    assert mark_disfluencies(corrected, "omit").text == "Um, well the lamp"


def test_nothing_is_marked_in_an_unknown_language() -> None:
    for language, where in ((None, "unknown"), ("fi", "fi")):
        marked = mark_disfluencies(spoken("um the the lamp", language), "omit")
        assert marked.text == "um the the lamp"
        assert marked.warnings == (
            f"verbatim: nothing is marked where the language is {where}; "
            "there are lists for de, en, es, fr, it, nl.",
        )


def test_the_language_is_that_of_the_passage_the_request_or_the_model() -> None:
    record = spoken("um um um um", None)  # in German, "um" is a word
    assert mark_disfluencies(record, "omit", ["en"]).text == ""
    assert mark_disfluencies(record, "omit", ["de", "en"]).text == "um um um um"
    asked = record.model_copy(update={"options": {"language": "en"}})
    assert mark_disfluencies(asked, "omit").text == ""
    translated = record.model_copy(update={"options": {"task": "translate", "language": "de"}})
    assert mark_disfluencies(translated, "omit").text == ""
    halves = (LanguageSpan(start=0, end=1, language="de"), LanguageSpan(start=1, end=2, language="en"))
    both = record.model_copy(update={"languages": halves, "language": "de"})
    assert mark_disfluencies(both, "omit").text == "um um"
