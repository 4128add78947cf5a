"""What Qwen3-ASR says, parsed as transformers 5.24.0 parses it (processing_qwen3_asr.py)."""

import pytest

from worker.models import cut_repeats, parse_output


@pytest.mark.parametrize(
    ("said", "language", "text"),
    [
        ("language German<asr_text> Im Winter. ", "German", "Im Winter."),
        ("language None<asr_text>", None, ""),
        ("LANGUAGE none<asr_text> hm", None, "hm"),
        ("Im Winter.", None, "Im Winter."),
        ("language Nglish<asr_text>f<asr_text>g", "Nglish", "f<asr_text>g"),
        ("\n \nlanguage  French \nmore<asr_text>la", "French", "la"),
        ("Spanish<asr_text>el", "Spanish", "el"),
        ("language <asr_text>el", "language", "el"),
        ("assistant\nlanguage Thai<asr_text>x", "Thai", "x"),
        ("  ", None, ""),
    ],
)
def test_an_answer_names_its_language_before_its_text(said: str, language: str | None, text: str) -> None:
    assert parse_output(said) == (language, text)


def test_characters_and_patterns_that_repeat_are_cut() -> None:
    assert cut_repeats("a" + "b" * 19 + "c" * 21) == "a" + "b" * 19 + "c"
    assert cut_repeats("so, " * 19) == "so, " * 19
    assert cut_repeats("I said " + "so, " * 20 + "no") == "I said so, no"
    assert cut_repeats("ab" * 25 + "x" + "cd" * 30) == "abxcd"
    assert cut_repeats("b" * 20 + "e" * 20) == "b" + "e" * 20
    # Stripped first, so that the last of them is another pattern.
    assert parse_output("language English<asr_text>" + "ha " * 40) == ("English", "ha ha")
