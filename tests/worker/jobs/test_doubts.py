"""What speaks against a transcript, as a person reads it on the job."""

import pytest

from ops.testbed.running_api import transcript_of
from spool.domain import Transcript
from spool.domain.transcript import SpeechSpan
from worker.jobs.doubts import warn_of_doubts

ENGLISH = ("en",)
SENTENCE = "I'm not sure if I'm going to be able to do this."


def heard(text: str, confidence: float = 0.9) -> Transcript:
    transcript = transcript_of("job_01JD5T9Q4X8K2M6N0P3R7S0001", tuple(text.split()))
    words = tuple(word.model_copy(update={"confidence": confidence}) for word in transcript.words)
    return transcript.model_copy(update={"words": words})


def test_words_that_the_model_is_unsure_of_are_told_with_the_command_that_runs_it_again() -> None:
    [warning] = warn_of_doubts(heard("Guten Tag is Heiserham's Hambuggum", 0.43), ENGLISH)
    assert warning == (
        "demo-tdt is unsure of most of the words, first at 0:00: the language may not be the model's (en), "
        "or the speech is hard to hear. Listen to it, or transcribe it with another model: spool rerun "
        "job_01JD5T9Q4X8K2M6N0P3R7S0001 --model whisper-base"
    )
    [warning] = warn_of_doubts(heard("Guten Tag is Heiserham's Hambuggum", 0.43), ("de", "en"))
    assert "the language may be another one" in warning
    assert warning.endswith("--model MODEL")


def test_a_part_of_a_recording_is_told_by_its_share() -> None:
    sure, unsure = (
        heard("we kept the light there " * 24),
        heard("guten Tag is Heiserham's Hambuggum " * 8, 0.4),
    )
    words = [
        word.model_copy(update={"text": f"{word.text}{at}", "start": at * 0.5, "end": at * 0.5 + 0.4})
        for at, word in enumerate(sure.words + unsure.words)
    ]
    [warning] = warn_of_doubts(sure.model_copy(update={"words": tuple(words)}), ENGLISH)
    assert warning.startswith("demo-tdt is unsure of 25% of the words, first at 1:00:")


def speech(*stretches: tuple[float, float]) -> tuple[SpeechSpan, ...]:
    return tuple(SpeechSpan(start=start, end=end, label="speech") for start, end in stretches)


def test_speech_without_words_is_told() -> None:
    silent = heard("").model_copy(update={"speech": speech((0.0, 7.1), (9.0, 150.0))})
    [warning] = warn_of_doubts(silent, ENGLISH)
    assert warning.startswith(
        "demo-tdt wrote nothing for 2 min of speech, first at 0:00: the language may not be the model's "
        "(en), or the speech is hard to hear. Listen to it, or transcribe it with another model: spool rerun"
    )
    unsure = heard("Guten Tag is Heiserham's Hambuggum", 0.43)
    [warning] = warn_of_doubts(
        unsure.model_copy(update={"speech": speech((0.0, 3.0), (63.0, 70.0))}), ENGLISH
    )
    assert "words, first at 0:00, and wrote nothing for 7 s of speech, first at 1:03: the" in warning


@pytest.mark.parametrize(
    "spans",
    [((0.0, 3.3),), ((0.0, 60.0), (61.0, 62.5)), ((0.0, 1.9),)],
    ids=["words near all of it", "less than a tenth", "too short to tell"],
)
def test_little_speech_without_words_is_not_told(spans: tuple[tuple[float, float], ...]) -> None:
    said = int(2 * spans[0][1]) if spans[0][1] > 2 else 0
    transcript = heard(" ".join(f"word{at}" for at in range(said)))
    assert not warn_of_doubts(transcript.model_copy(update={"speech": speech(*spans)}), ENGLISH)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"{SENTENCE} {SENTENCE}",
            "The same words repeat 2 times at 0:00 (“I'm not sure if I'm going to be able to”)",
        ),
        ("then make a video on the make a video on the make a video on the road", "repeat 3 times at 0:00"),
        ("no no no no no no no no no no", "repeat 10 times at 0:00 (“no”)"),
        ("it was very very very good", None),
        ("come on come on he said", None),
        (SENTENCE, None),
        ("", None),
    ],
)
def test_words_that_repeat_are_told(text: str, told: str | None) -> None:
    warnings = (
        warn_of_doubts(heard(text), ENGLISH)
        if text
        else warn_of_doubts(heard("a").model_copy(update={"words": (), "segments": ()}), ENGLISH)
    )
    assert [told in warning for warning in warnings if told] == [True] * (told is not None)
    assert bool(warnings) == (told is not None)
