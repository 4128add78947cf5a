"""What may be said of a recording's language, and that one choice has one form."""

import pytest
from pydantic import ValidationError

from spool.domain import AskedOptions, JobOptions, language_of_text


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (None, None),
        ("auto", None),
        ("de", "de"),
        (["de"], "de"),
        (["fr", "de", "fr"], ("de", "fr")),
        (["en", "yue"], ("en", "yue")),
    ],
)
def test_one_choice_has_one_form(said: object, kept: object) -> None:
    asked = AskedOptions.model_validate({"model": "base", "language": said})
    assert asked.language == kept
    stored = asked.job_options()
    assert JobOptions.model_validate_json(stored.model_dump_json()) == stored
    assert ("language" in stored.document()) == (kept is not None)


@pytest.mark.parametrize("said", ["", "english", "DE", [], ["de", "English"], ["de", 3], 7, ["auto", "de"]])
def test_anything_else_is_refused(said: object) -> None:
    with pytest.raises(ValidationError, match="language"):
        AskedOptions.model_validate({"model": "base", "language": said})


def test_a_command_line_s_words() -> None:
    texts = (None, "", "auto", "de", "fr, de", "de,")
    assert [language_of_text(text) for text in texts] == [None, None, None, "de", ("de", "fr"), "de"]
