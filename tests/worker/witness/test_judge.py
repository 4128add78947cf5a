"""Verdicts on transcripts of sounds that are known."""

import numpy as np
import pytest

from spool.sounds.phones import COLUMNS, HEARD, PHONES, SILENCE, PhoneFrames
from tests.spool.sounds.sounds import LEXICON, hear
from worker.witness.judge import Findings, check_transcript
from worker.witness.transcripts import GivenSegment, GivenTranscript, GivenWord

SAID = [
    (2.0, "the old teacher gave us three reasons why music matters"),
    (9.0, "please remember to close both windows"),
    (15.0, "nobody expected such a quiet answer"),
    (26.0, "ships brought coffee sugar and cotton"),
]
FRAMES, SPANS = hear(SAID, 40.0)
INVENTED = "thank you for watching this video"


def segment(start: float, end: float, text: str, channel: int = 0) -> GivenSegment:
    return GivenSegment(start, end, text, tuple(map(GivenWord, text.split())), channel)


def true_segments(shift: float = 0.0) -> list[GivenSegment]:
    return [
        segment(max(0, a + shift), b + shift, text) for (a, b), (_, text) in zip(SPANS, SAID, strict=True)
    ]


def check(segments: list[GivenSegment], language: str | None = None) -> Findings:
    return check_transcript(GivenTranscript(tuple(segments), language), [FRAMES], LEXICON)


@pytest.mark.parametrize("shift", [-1.5, -0.5, 0.0, 0.5, 1.5])
def test_what_was_said_is_supported_although_its_times_are_off(shift: float) -> None:
    found = check(true_segments(shift))
    assert [each.flagged for each in found.segments] == [False] * 4
    assert all(each.evidence is not None and each.evidence > 0.8 for each in found.segments)
    assert found.speech_without_words == ()
    assert found.words_without_evidence == 0
    words = found.segments[1].words
    assert [word.text for word in words] == SAID[1][1].split()
    assert abs(words[0].start - 9.0) < 0.1
    assert words[0].end <= words[1].start <= words[-1].end


def test_inventions_are_flagged_in_a_pause_in_place_of_speech_and_over_it() -> None:
    true = true_segments()
    pause, over = segment(20.0, 23.0, INVENTED), segment(16.0, 17.5, INVENTED)
    instead = segment(true[1].start, true[1].end, INVENTED)
    found = check([true[0], instead, true[2], over, pause, true[3]])
    assert [each.flagged for each in found.segments] == [False, True, False, True, True, False]
    assert [each.given.text for each in found.segments][3] == INVENTED
    assert found.words_without_evidence == 3 * len(INVENTED.split())
    (speech,) = found.speech_without_words
    assert true[1].start - 0.2 < speech.start < speech.end < true[1].end + 0.3


def test_a_sentence_that_is_repeated_beside_itself_is_flagged_once() -> None:
    true = true_segments()
    again = segment(true[1].end + 0.1, true[1].end + 2.0, true[1].text)
    found = check([true[0], true[1], again, true[2], true[3]])
    assert [each.flagged for each in found.segments] == [False, False, True, False, False]


def test_speech_that_no_word_covers_is_listed() -> None:
    true = true_segments()
    found = check([true[0], true[1], true[3]])
    (speech,) = found.speech_without_words
    assert abs(speech.start - SPANS[2][0]) < 0.3
    assert abs(speech.end - SPANS[2][1]) < 0.4


def test_nothing_is_said_of_a_text_that_it_cannot_judge() -> None:
    true = true_segments()
    french = check(true, "fr")
    assert french.abstained == "the transcript's language is fr; the witness knows English alone"
    assert {(each.flagged, each.evidence) for each in french.segments} == {(False, None)}
    foreign = "les grands bateaux apportaient du café chaque matin pluvieux"
    assert "of the words are in the English dictionary" in check([segment(2.0, 5.0, foreign)]).abstained
    odd = [
        segment(2, 3, "— …"),
        segment(3, 3, ""),
        segment(90, 95, INVENTED),
        segment(2, 3, "a"),
        segment(2, 80, "zzz"),
    ]
    found = check([*odd, *true])
    assert [each.reason for each in found.segments] == [
        "no word whose sounds are known",
        "no word whose sounds are known",
        "it begins behind the recording's end",
        "too short to be told from chance",
        "no word whose sounds are known",
        *[""] * 4,
    ]
    assert not any(each.flagged for each in found.segments)
    assert check([]).segments == ()


def test_an_unsure_model_abstains() -> None:
    table = np.full((1000, COLUMNS), 30, np.uint8)
    table[:, HEARD] = 1
    found = check_transcript(GivenTranscript(tuple(true_segments())), [PhoneFrames(table)], LEXICON)
    assert found.abstained.startswith("the model is unsure of the sounds")


def test_silence_and_no_audio_support_nothing() -> None:
    table = np.full((1000, COLUMNS), 255, np.uint8)
    table[:, HEARD], table[:, SILENCE] = 0, 0
    assert len(PHONES) == 39
    quiet = check_transcript(GivenTranscript((segment(2, 5, INVENTED),)), [PhoneFrames(table)], LEXICON)
    assert quiet.segments[0].flagged
    none = check_transcript(GivenTranscript((segment(0, 5, INVENTED),)), [PhoneFrames(table[:0])], LEXICON)
    assert none.segments[0].reason == "it begins behind the recording's end"


def test_a_long_segment_is_judged_by_its_words_times_or_not_at_all() -> None:
    words = []
    for (start, _), (_, text) in zip(SPANS, SAID, strict=True):
        words += [
            GivenWord(each, start + 0.3 * at, start + 0.3 * at + 0.3) for at, each in enumerate(text.split())
        ]
    text = " ".join(word.text for word in words)
    long = GivenSegment(0.0, 60.0, text, tuple(words))
    (found,) = check([long]).segments
    assert not found.flagged
    assert found.evidence is not None
    assert [word.text for word in found.words] == text.split()
    (bare,) = check([segment(0.0, 60.0, text)]).segments
    assert bare.reason == "longer than 40 s and without times of its words"
    wrong = [
        GivenWord("video" if word.start < 14 else word.text, word.start, word.end)
        for word in words
        if word.start
    ]
    assert check([GivenSegment(0.0, 60.0, text, tuple(wrong))]).segments[0].flagged


def test_channels_are_judged_each_by_its_own_sounds() -> None:
    other, _ = hear([(5.0, INVENTED)], 40.0)
    segments = (*true_segments(), segment(5.0, 7.5, INVENTED, 1), segment(26.0, 29.0, SAID[3][1], 1))
    found = check_transcript(GivenTranscript(segments), [FRAMES, other], LEXICON)
    assert [each.flagged for each in found.segments] == [False] * 5 + [True]
