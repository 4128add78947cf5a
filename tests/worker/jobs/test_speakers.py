"""Speakers put into a transcript, by hand."""

from ops.testbed.running_api import transcript_of
from spool.domain import DiarizationFacts, Transcript, Word
from worker.diarization import SpeakerSegment
from worker.jobs import carry_names, with_channels_as_speakers, with_speakers

MODEL = DiarizationFacts(name="default", sha256="0")
Segments = list[SpeakerSegment]


def spoken(*texts: str, channel: int = 0, start: float = 0.0) -> tuple[Word, ...]:
    """Words of 0.4 s, one every half second."""
    return tuple(
        Word(
            text=text,
            start=start + 0.5 * at,
            end=start + 0.5 * at + 0.4,
            confidence=0.9,
            channel=channel,
        )
        for at, text in enumerate(texts)
    )


def recorded(*words: Word) -> Transcript:
    return transcript_of("job_1", ("x",)).model_copy(update={"words": words})


def labels(transcript: Transcript) -> list[str | None]:
    return [word.speaker for word in transcript.words]


def test_speakers_are_numbered_by_their_first_word_and_segments_end_with_them() -> None:
    segments = [SpeakerSegment(0, 1, 4), SpeakerSegment(1, 2, 2), SpeakerSegment(5, 6, 7)]
    transcript = with_speakers(recorded(*spoken("a", "b", "c", "d")), {0: segments}, MODEL)
    assert labels(transcript) == ["speaker_0", "speaker_0", "speaker_1", "speaker_1"]
    assert [segment.speaker for segment in transcript.segments] == ["speaker_0", "speaker_1"]
    assert [(each.label, each.talk_seconds, each.words) for each in transcript.speakers] == [
        ("speaker_0", 1.0, 2),
        ("speaker_1", 1.0, 2),
        ("speaker_2", 1.0, 0),
    ]
    assert [turn.speaker for turn in transcript.turns] == ["speaker_0", "speaker_1", "speaker_2"]


def test_a_word_that_another_speaker_covers_by_half_is_marked() -> None:
    segments = [SpeakerSegment(0, 2, 0), SpeakerSegment(0.5, 0.9, 1)]
    transcript = with_speakers(recorded(*spoken("a", "b", "c")), {0: segments}, MODEL)
    assert [word.overlap for word in transcript.words] == [False, True, False]


def test_nobody_is_heard() -> None:
    transcript = with_speakers(recorded(*spoken("a")), {0: []}, MODEL)
    assert (labels(transcript), transcript.speakers, transcript.turns) == ([None], (), ())
    assert transcript.diarization == MODEL


def test_speakers_of_two_channels_are_never_one() -> None:
    words = (*spoken("a", "b"), *spoken("c", "d", channel=1))
    segments = {channel: [SpeakerSegment(0, 0.5, 0), SpeakerSegment(0.5, 1, 1)] for channel in range(2)}
    transcript = with_speakers(recorded(*words), segments, MODEL)
    assert labels(transcript) == [f"speaker_{number}" for number in range(4)]
    assert {turn.speaker: turn.channel for turn in transcript.turns} == {
        "speaker_0": 0,
        "speaker_1": 0,
        "speaker_2": 1,
        "speaker_3": 1,
    }


def test_a_channel_is_a_speaker_whose_turns_are_its_words() -> None:
    words = (*spoken("a", "b", "c"), *spoken("d", channel=1, start=0.45), *spoken("e", channel=1, start=4))
    transcript = with_channels_as_speakers(recorded(*words))
    assert [word.overlap for word in transcript.words] == [False, True, False, True, False]
    assert [(turn.start, turn.end, turn.speaker) for turn in transcript.turns] == [
        (0.0, 1.4, "speaker_0"),
        (0.45, 0.85, "speaker_1"),
        (4.0, 4.4, "speaker_1"),
    ]
    assert [each.channel for each in transcript.speakers] == [0, 1]


def test_a_name_goes_to_whoever_says_most_of_its_words_and_to_nobody_else() -> None:
    words = spoken("a", "b", "c", "d", "e")

    def by(*who: int) -> Transcript:
        marked = (
            word.model_copy(update={"speaker": f"speaker_{n}"}) for word, n in zip(words, who, strict=True)
        )
        return recorded(*marked)

    names = {"speaker_0": "Ada", "speaker_1": "Bo"}
    assert carry_names(names, by(0, 0, 0, 1, 1), by(0, 1, 1, 2, 2)) == {"speaker_1": "Ada", "speaker_2": "Bo"}
    assert carry_names(names, by(0, 0, 0, 1, 1), by(0, 0, 0, 0, 0)) == {"speaker_0": "Ada"}
    assert carry_names({}, by(0, 0, 0, 1, 1), by(1, 1, 1, 0, 0)) == {}
