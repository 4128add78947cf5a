"""Prompts from options, words from stamps, and what is made of answers that loop or say nothing."""

from typing import Any

import pytest

from spool.errors import InvalidRequest
from tests.worker.models.canary.fixtures import FLASH, SINGLE, config, sound, tokenizer
from worker.models import (
    DecodeRequest,
    Prompt,
    PromptAnswer,
    Window,
    WindowOutcome,
    cut_runs,
    judge_answer,
    prompt_slots,
    prompt_tokens,
    time_stamped_words,
)


def slots(model: str = FLASH, *, stamped: bool = False, **options: object) -> dict[str, str]:
    asked = DecodeRequest(**options)
    return prompt_slots("canary2", config(model).defaults, asked, stamped=stamped)


def test_options_become_slots() -> None:
    plain = slots()
    assert (plain["source_lang"], plain["target_lang"]) == ("<|en|>", "<|en|>")
    german = slots(
        language="de", translate_to="fr", punctuation=False, prompt=" a <|nopnc|> word ", stamped=True
    )
    changed = {key: value for key, value in german.items() if plain[key] != value}
    assert changed == {
        "source_lang": "de",
        "target_lang": "fr",
        "pnc": "no",
        "timestamp": "yes",
        "decodercontext": "a   word",
    }
    assert slots(language="de", task="translate")["target_lang"] == "en"
    named = slots(language="de", prompt='{"pnc": "no", "source_lang": "<|es|>", "timestamp": true}')
    assert (named["source_lang"], named["target_lang"], named["pnc"]) == ("<|es|>", "de", "no")
    first = prompt_slots("canary", {}, DecodeRequest(language="de", task="translate"), stamped=False)
    assert first == {"source_lang": "de", "task": "translate", "target_lang": "en", "pnc": "yes"}


def test_a_named_slot_is_its_token() -> None:
    reader = tokenizer(FLASH)
    tokens = prompt_tokens("canary2", slots(prompt='{"timestamp": 1, "diarize": "yes"}'), reader)
    assert [reader.pieces[token] for token in tokens[-2:]] == ["<|timestamp|>", "<|diarize|>"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt": '{"mood": "good"}'}, "no slot 'mood'; this model takes: decodercontext, emotion"),
        ({"prompt": "{pnc: no}"}, "begins like JSON"),
        ({"prompt": '{"pnc": []}'}, "the slot pnc is"),
        ({"task": "translate"}, "translate_to: the recording is in 'en' already"),
        ({"language": "de", "translate_to": "de"}, "translate_to: the recording is in 'de' already"),
        ({"prompt": '{"pnc": "perhaps"}'}, "pnc is 'perhaps'; it is yes or no"),
        ({"prompt": '{"source_lang": "xx"}'}, r"language: .* no <\|xx\|>"),
        ({"prompt": '{"emotion": "bored"}'}, r"prompt: .* no <\|emo:bored\|>"),
    ],
)
def test_what_a_prompt_cannot_be_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        prompt_tokens("canary2", slots(**options), tokenizer(FLASH))


def test_canary_1b_takes_no_context() -> None:
    with pytest.raises(InvalidRequest, match="prompt: this model takes no context"):
        prompt_slots("canary", {}, DecodeRequest(prompt="before"), stamped=False)


def test_languages_and_special_tokens() -> None:
    assert tokenizer(FLASH).languages == {"en", "de", "es", "fr"}
    assert tokenizer(SINGLE).languages == {"en", "de", "fr", "it", "uk"}
    reader = tokenizer(FLASH)
    offset = next(part.offset for part in reader.parts if part.name == "fr")
    assert reader.encode("the", "fr")[0] >= offset
    assert reader.decode([reader.eos, *reader.encode("the work"), 10**6]) == "the work"
    assert not reader.is_text(len(reader.pieces))


def stamped(text: str) -> list[int]:
    """`3 word 5` as stamps and text tokens of the first language."""
    reader = tokenizer(FLASH)
    stamps = {frame: token for token, frame in reader.stamps.items()}
    return [
        token
        for part in text.split()
        for token in ([stamps[int(part)]] if part.isdigit() else reader.encode(part))
    ]


def times(text: str, seconds: float = 10.0) -> list[tuple[str, float, float]]:
    words = time_stamped_words(stamped(text), tokenizer(FLASH), 0.1, seconds)
    return [(word.text, round(word.start, 3), round(word.end, 3)) for word in words]


def test_words_have_the_times_of_their_stamps() -> None:
    assert times("3 the 5 8 work 12") == [("the", 0.3, 0.5), ("work", 0.8, 1.2)]
    assert times("") == []


def test_a_word_without_a_stamp_stays_between_its_neighbours() -> None:
    assert times("3 the 5 8 work") == [("the", 0.3, 0.5), ("work", 0.8, 10.0)]
    assert times("3 the 8 work 12") == [("the", 0.3, 0.8), ("work", 0.8, 1.2)]
    assert times("the 8 work 12") == [("the", 0.0, 0.8), ("work", 0.8, 1.2)]
    # Never backwards, never behind the window's end.
    assert times("9 the 5 3 work 259") == [("the", 0.9, 0.9), ("work", 0.9, 10.0)]


def reading(tokens: tuple[int, ...], *, ended: bool = True, compression: float = 1.0) -> PromptAnswer:
    return PromptAnswer(Prompt(()), tokens, ended, len(tokens), compression, -0.5)


def verdict(answer: PromptAnswer, seconds: float = 10.0, turn: int = 0) -> WindowOutcome:
    samples = sound(seconds)
    return judge_answer(Window(0, len(samples), turn), answer, samples)


def test_words_are_kept_loops_halved_and_cut() -> None:
    assert verdict(reading((5, 6))).kept == (5, 6)
    looping = reading((1, 2, *(7, 8) * 6, 9), compression=3.0)
    halved = verdict(looping)
    assert halved.outcome == "divided"
    assert [each.round for each in halved.again] == [1, 1]
    for seconds, turn in ((3.0, 0), (10.0, 4)):
        assert verdict(looping, seconds, turn).kept == (1, 2, 7, 8, 9)
    assert verdict(reading((5,), ended=False)).outcome == "divided"
    assert verdict(reading(())).outcome == "silent"


def test_runs() -> None:
    assert cut_runs((1, 1, 1)) == (1, 1, 1)
    assert cut_runs((1, 1, 1, 1)) == (1,)
    assert cut_runs((4, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1)) == (4, 1, 2, 3, 1)
    assert cut_runs(()) == ()
    assert cut_runs((1, 2, 1, 2)) == (1, 2, 1, 2)
