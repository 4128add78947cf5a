"""Existing transcripts in the options of a job: the forms they come in, and what does not go beside them."""

import base64

import pytest
from pydantic import ValidationError

from spool.domain import Align, AskedOptions, JobOptions, SpokenWord, Typescript

TEXT = "ANNA: Good morning.\nBO: Well.\nANNA: Well.\nBO: Good."


def asked(**options: object) -> AskedOptions:
    return AskedOptions.model_validate({"model": "m", "align": {"text": TEXT}, **options})


def test_every_form_of_a_text_is_one_text() -> None:
    text = asked().typescript
    assert text is not None
    assert text.words[0] == SpokenWord("Good", "ANNA")
    forms: list[dict[str, object]] = [
        {"data": base64.b64encode(TEXT.encode()).decode()},
        {"words": [[word.text, word.speaker] for word in text.words]},
    ]
    assert {asked(align=form).job_options().align for form in forms} == {text.kept}
    assert Typescript.unpack(text.pack()) == text
    assert Align.of(text).typescript == text
    # Who speaks is a part of it.
    assert asked(align={"text": TEXT.replace("BO", "CY")}).job_options().align != text.kept


def test_a_job_keeps_the_digest_and_no_detector_drops_a_word() -> None:
    kept = asked(speech_detector=False).job_options()
    assert kept == asked().job_options() == JobOptions.model_validate(kept.model_dump(mode="json"))
    assert kept.speech_detector is False
    assert "align" not in JobOptions(model="m").model_dump()
    assert kept.of_words != asked(align={"text": "other words"}).job_options().of_words


@pytest.mark.parametrize(
    "option",
    [
        {"decoder": "beam"},
        {"head": "tdt"},
        {"nbest": 2, "decoder": "beam"},
        {"language_model": "news"},
        {"boost": {"phrases": ["Anna"]}},
        {"translate_to": "de"},
        {"language": "de"},
        {"channels": "separate"},
        {"speech_detector": True},
        {"diarization": {}},
    ],
)
def test_what_makes_no_sense_beside_a_text_is_refused_by_its_name(option: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=rf"({'|'.join(option)}): "):
        asked(**option)


def test_speakers_can_be_found_where_the_text_names_none() -> None:
    assert (
        asked(align={"text": "Good morning."}, diarization={"speakers": 2}).job_options().diarization
        is not None
    )


@pytest.mark.parametrize(
    ("align", "reason"),
    [
        ({}, "one of text, data and words"),
        ({"text": "a", "data": "YQ=="}, "one of text, data and words"),
        ({"text": " … "}, "has no words"),
        ({"words": [["—", None]]}, "has no words"),
        ({"words": [["a", f"speaker {number}"] for number in range(100)]}, "names 100 speakers"),
        ({"words": [["a", "A" * 101]]}, "more than 100 characters"),
        ({"words": [["a", "A\nB"]]}, "control characters"),
        ({"data": "%"}, "not base64"),
        ({"data": base64.b64encode(b"\xff\x00").decode(), "name": "reel.doc"}, "reel.doc: neither a Word"),
        ({"data": base64.b64encode(b"PK\x03\x04" + bytes(99)).decode()}, "cannot be read"),
    ],
)
def test_a_text_that_cannot_be_read_says_why(align: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        asked(align=align)
