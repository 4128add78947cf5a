"""Byte-level tokens, words of spaced and unspaced languages, and prompts."""

import pytest
import tokenizers

from tests.worker.models.whisper.tiny import tokenizer_text
from worker.models import TokenSpan, WhisperTokenizer, join_punctuation

pytestmark = pytest.mark.slow

TEXTS = ["", " Hello, world!", " naïve café", "日本語 です", " 🎉 ok", "\n tab\t", " <|endoftext|>"]


def tokenizer(vocabulary: int = 51865) -> WhisperTokenizer:
    text = tokenizer_text(vocabulary)
    return WhisperTokenizer(tokenizers.Tokenizer.from_str(text), vocabulary)


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(text: str) -> None:
    reader = tokenizer()
    tokens = reader.encode(text)
    assert max(tokens, default=0) < reader.ids.eot  # nobody's text is a special token
    assert reader.decode(tokens) == text


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("language", ["en", "ja"])
def test_words_are_the_text_and_hold_every_token_once(text: str, language: str) -> None:
    reader = tokenizer()
    tokens = reader.encode(text)
    words = reader.words(tokens, language)
    assert "".join(word.text for word in words) == text
    assert [at for word in words for at in range(word.first, word.last)] == list(range(len(tokens)))


def test_words_begin_at_spaces_and_are_joined_from_bytes() -> None:
    reader = tokenizer()
    words = reader.words(reader.encode(" It's naïve, “no”."))
    assert [word.text for word in words] == [" It", "'", "s", " naïve", ",", " “no”", "."] or [
        word.text for word in words
    ] == [" It", "'s", " naïve", ",", " “no”", "."]


def test_unspaced_languages_are_split_at_characters() -> None:
    reader = tokenizer()
    assert [word.text for word in reader.words(reader.encode("日本語"), "ja")] == ["日", "本", "語"]
    assert [word.text for word in reader.words(reader.encode("日本語"), "en")] == ["日本語"]


def test_broken_utf8_loses_nothing() -> None:
    reader = tokenizer()
    tokens = [*reader.encode(" a"), *reader.encode("é")[:1], *reader.encode(" b"), *reader.encode("日")[:2]]
    words = reader.words(tokens)
    assert [at for word in words for at in range(word.first, word.last)] == list(range(len(tokens)))


def test_special_tokens_and_times_have_no_text() -> None:
    reader = tokenizer()
    assert reader.decode([50258, 50364, *reader.encode(" a"), 50400, 50257]) == " a"
    with pytest.raises(IndexError, match="51865 is outside"):
        reader.decode([51865])


def test_punctuation_joins_its_neighbour() -> None:
    texts = [" “", "Yes", "”", ",", " he", " (", "said", ")", "."]
    words = [TokenSpan(text, at, at + 1) for at, text in enumerate(texts)]
    assert join_punctuation(words) == [
        TokenSpan(" “Yes”,", 0, 4),
        TokenSpan(" he", 4, 5),
        TokenSpan(" (said).", 5, 9),
    ]


def test_a_prompt_is_cut_to_223_tokens() -> None:
    reader = tokenizer()
    long = " ".join(["word"] * 10_000)
    assert len(reader.previous(long)) == 223
    assert len(reader.previous(long, hotwords="ab")) == 223
    assert reader.previous(long, hotwords="ab")[:3] == reader.encode(" ab")
    assert reader.previous("cd", hotwords=long) == reader.encode(" " + long)[:223]
    assert reader.previous("cd", "ab") == reader.encode(" ab cd")
    assert reader.previous("  ") == []
