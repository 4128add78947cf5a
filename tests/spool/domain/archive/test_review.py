"""What is to be reviewed of a transcript, and how doubtful it is."""

import pytest

from ops.testbed.running_api import transcript_of
from spool.domain import Doubts, LanguageSpan, SpeechSpan, Spoken, Transcript, Word, review_passages


def record(*words: Word, **also: object) -> Transcript:
    return transcript_of("job_x", ("a",)).model_copy(update={"words": words, **also})


def word(at: float, confidence: float = 1.0, text: str = "light", *, doubtful: bool = False) -> Word:
    return Word(text=text, start=at, end=at + 0.4, confidence=confidence, doubtful=doubtful)


def test_every_word_is_in_one_passage_whoever_speaks() -> None:
    words = [word(at * 0.5).model_copy(update={"speaker": f"speaker_{at % 3}"}) for at in range(95)]
    words += [word(100 + at * 0.5).model_copy(update={"channel": 1}) for at in range(3)]
    found = review_passages(record(*words))
    ranges = [(each.first_word, each.last_word) for each in found]
    assert ranges == [(0, 39), (40, 79), (80, 94), (95, 97)]
    assert [(each.number, each.words, each.channel) for each in found] == [
        (0, 40, 0),
        (1, 40, 0),
        (2, 15, 0),
        (3, 3, 1),
    ]
    assert review_passages(record()) == []


def test_words_are_doubtful_for_what_the_model_and_the_detector_say() -> None:
    (found,) = review_passages(record(word(0, 0.9), word(1, 0.5, doubtful=True)))
    assert found.doubts == Doubts(confidence=0.3, speech=0.5)
    assert found.doubts.total == pytest.approx(1 - 0.7 * 0.5)


def test_words_that_another_version_has_otherwise_are_doubtful() -> None:
    words = [word(0, text="Keep,"), word(1, text="the"), word(2, text="light"), word(3, text="on")]
    other = [
        Spoken(text, at, at + 0.4, 1.0)
        for text, at in (("keep", 0.3), ("the", 9.0), ("lamp", 2.0), ("on", 3.0))
    ]
    (found,) = review_passages(record(*words), other)
    assert found.doubts.versions == 0.5  # "the" is there at another time, "light" is not
    assert review_passages(record(*words))[0].doubts.versions == 0.0


def test_speech_without_words_is_a_passage_of_its_own() -> None:
    speech = (
        SpeechSpan(start=0, end=4, label="speech"),
        SpeechSpan(start=4, end=8, label="no_speech"),
        SpeechSpan(start=8, end=30, label="speech"),
    )
    found = review_passages(record(word(5), word(12), word(13), speech=speech))
    silent = [
        (each.start_seconds, each.end_seconds, each.first_word, each.last_word)
        for each in found
        if not each.words
    ]
    assert silent == [(0, 4, 0, -1), (8, 11.5, 1, 0), (13.9, 30, 3, 2)]
    assert [each.doubts.speech for each in found if not each.words] == [0.4, 0.35, 1.0]
    assert [each.text for each in found if not each.words] == [""] * 3
    (all_silent,) = review_passages(record(speech=speech[:1]))
    assert (all_silent.first_word, all_silent.last_word) == (0, -1)


def test_a_sudden_change_of_language_is_doubtful_as_far_as_the_model_was_unsure() -> None:
    def span(start: float, language: str, probability: float, read_as: str | None = None) -> LanguageSpan:
        return LanguageSpan(
            start=start, end=start + 10, language=language, probability=probability, read_as=read_as
        )

    words = [word(10 * at + each / 3) for at in range(5) for each in range(20)]
    spans = (
        span(0, "de", 0.4),
        span(10, "de", 0.5),
        span(20, "fr", 0.6),
        span(30, "de", 0.99),
        span(40, "de", 0.9, "nl"),
    )
    found = review_passages(record(*words, languages=spans))
    by_start = {each.start_seconds: each.doubts.language for each in found}
    assert by_start == {0: 0.0, 10: 0.0, 20: 0.4, 30: 0.25, 40: 1.0}
