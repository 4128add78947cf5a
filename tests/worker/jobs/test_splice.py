"""A stretch of a transcript is replaced: nothing outside changes, nothing is lost or doubled at an edge."""

import numpy as np
import pytest

from ops.testbed.running_api import transcript_of
from spool.domain import Speaker, SpeechSpan, Transcript, Turn, Word
from worker.jobs import move, splice
from worker.segmentation import segments_of


def transcript(words: list[Word], **more: object) -> Transcript:
    plain = transcript_of("job_1", ("a",))
    own = {
        "words": tuple(words),
        "segments": tuple(segments_of(words)),
        "text": " ".join(w.text for w in words),
    }
    return plain.model_copy(update={**own, **more})


def said(text: str, start: float = 0.0, step: float = 1.0, channel: int = 0) -> list[Word]:
    """A word each second, 0.6 s long."""
    return [
        Word(
            text=word,
            start=round(start + at * step, 3),
            end=round(start + at * step + 0.6, 3),
            confidence=0.9,
        ).model_copy(update={"channel": channel})
        for at, word in enumerate(text.split())
    ]


def texts(of: Transcript) -> list[str]:
    return [word.text for word in of.words]


def assert_consistent(of: Transcript) -> None:
    covered = sorted(at for each in of.segments for at in range(each.first_word, each.last_word + 1))
    assert covered == list(range(len(of.words)))
    for each in of.segments:
        own = of.words[each.first_word : each.last_word + 1]
        assert (each.start, each.channel) == (own[0].start, own[0].channel)
    assert of.text.split() == " ".join(texts(of)).split()
    for one, two in zip(of.words, of.words[1:], strict=False):
        assert (one.channel, one.start) <= (two.channel, two.start)


def test_words_outside_stay_as_they_are_and_those_inside_are_new() -> None:
    base = transcript(said("a b c d e f g h i j"))
    fresh = transcript(said("b c X Y g h", 1.02))  # heard from 1 s on
    result = splice(base, fresh, 3.0, 5.0)
    assert texts(result) == ["a", "b", "c", "X", "Y", "f", "g", "h", "i", "j"]
    assert [w for w in result.words if w.text not in "XY"] == [w for w in base.words if w.text not in "de"]
    assert_consistent(result)


@pytest.mark.parametrize("shift", [-0.35, -0.2, -0.05, 0.0, 0.05, 0.2, 0.35])
@pytest.mark.parametrize("edge", [3.0, 3.3, 3.31, 3.6])
def test_a_word_at_an_edge_is_there_once(shift: float, edge: float) -> None:
    base = transcript(said("a b c over e f g h i j"))
    fresh = transcript(said("b c over e f g h i", 1.0 + shift))
    for start, end in ((edge, 7.0), (0.0, edge)):
        result = splice(base, fresh, start, end)
        assert texts(result).count("over") == 1, (start, end)
        assert "c" in texts(result)
        assert "e" in texts(result)
        assert_consistent(result)


def test_a_correction_outside_stays_whatever_is_heard_across_the_edge() -> None:
    words = said("a b Petersen d e f")
    words[2] = words[2].model_copy(update={"text": "Pedersen", "corrected": True, "confidence": 1.0})
    fresh = transcript(said("b Petersen D E f", 1.2))
    result = splice(transcript(words), fresh, 2.35, 5.0)  # the new one has its middle inside
    assert texts(result) == ["a", "b", "Pedersen", "D", "E", "f"]
    assert result.words[2].corrected


def test_random_stretches_lose_and_double_nothing() -> None:
    generator = np.random.default_rng(7)
    names = [f"w{at}" for at in range(60)]
    base = transcript(said(" ".join(names)))
    for _ in range(60):
        start, end = sorted(round(float(each), 3) for each in generator.uniform(0, 60, 2))
        near = [at for at in range(60) if start - 2 <= at + 0.3 < end + 2]
        jitter = float(generator.uniform(-0.2, 0.2))
        fresh = [said(names[at], max(0.0, at + jitter))[0] for at in near]
        result = splice(base, transcript(fresh), start, end)
        assert texts(result) == names, (start, end, jitter)
        assert_consistent(result)


def test_channels_are_replaced_each_by_itself() -> None:
    left, right = said("a b c d e"), said("A B C D E", channel=1)
    base = transcript([*left, *right])
    fresh = transcript([*said("x", 2.1), *said("Y", 2.1, channel=1)])
    result = splice(base, fresh, 2.0, 3.0)
    assert texts(result) == ["a", "b", "x", "d", "e", "A", "B", "Y", "D", "E"]
    assert_consistent(result)


def test_new_words_are_said_by_whoever_has_the_turn() -> None:
    words = [
        w.model_copy(update={"speaker": f"speaker_{w.start >= 5:d}"}) for w in said("a b c d e f g h i j")
    ]
    turns = (
        Turn(start=0, end=4.8, speaker="speaker_0"),
        Turn(start=4.9, end=10, speaker="speaker_1"),
    )
    speakers = tuple(Speaker(label=f"speaker_{at}", name=None, talk_seconds=5, words=5) for at in range(2))
    base = transcript(words, turns=turns, speakers=speakers)
    result = splice(base, transcript(said("x y z", 3.0)), 3.0, 6.0)
    assert [w.speaker for w in result.words] == ["speaker_0"] * 5 + ["speaker_1"] * 5
    assert [each.words for each in result.speakers] == [5, 5]
    assert [each.speaker for each in result.segments] == ["speaker_0", "speaker_1"]
    result = splice(base, transcript([]), 3.0, 6.0)
    assert [each.words for each in result.speakers] == [3, 4]


def test_spans_of_speech_are_those_of_each_side_without_a_gap() -> None:
    base = transcript(said("a b"), speech=(SpeechSpan(start=0, end=10, label="speech"),))
    fresh = transcript(said("a b"), speech=(SpeechSpan(start=1, end=7, label="no_speech"),))
    spans = [(s.start, s.end, s.label) for s in splice(base, fresh, 3.0, 5.0).speech]
    assert spans == [(0, 3, "speech"), (3, 5, "no_speech"), (5, 10, "speech")]


def test_a_transcript_is_moved_as_a_whole() -> None:
    moved = move(transcript(said("a b", 1.0)), 12.5)
    assert [(w.start, w.end) for w in moved.words] == [(13.5, 14.1), (14.5, 15.1)]
    assert moved.segments[0].start == 13.5
    assert move(moved, -12.5) == transcript(said("a b", 1.0))
