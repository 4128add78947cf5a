"""Words by what the detector heard: marked, dropped by whole segments, and how much of the speech has any."""

from itertools import pairwise

import numpy as np
import pytest

from ops.testbed.running_api import transcript_of as transcript_in_api
from spool.domain import (
    AudioFacts,
    ChunkSpan,
    DecodedChunk,
    ModelFacts,
    NbestText,
    Recognition,
    Segment,
    Speaker,
    Word,
)
from tests.worker.speech.sounds import Floats, conversation, noise
from worker.audio import SAMPLE_RATE
from worker.jobs import check_words, find_invented_lists, transcript_of
from worker.jobs.speech_check import drop_flagged
from worker.speech import SpeechListener, listeners


def heard(*channels: Floats) -> list[SpeechListener]:
    hearing = listeners(len(channels))
    for listener, samples in zip(hearing, channels, strict=True):
        listener.push(samples)
        listener.finish()
    return hearing


def words(*starts: float, channel: int = 0) -> list[Word]:
    return [Word(text=f"w{at:g}", start=at, end=at + 0.3, confidence=1.0, channel=channel) for at in starts]


@pytest.fixture(scope="module")
def talk() -> Floats:
    """10 s of noise, then the conversation, which begins with a word."""
    return np.concatenate([noise(10.0, 1e-3), conversation()[: 20 * SAMPLE_RATE]])


def test_a_segment_of_doubtful_words_is_dropped_and_kept_apart(talk: Floats) -> None:
    hearing = heard(talk)
    loud = 10 + float(np.argmax(hearing[0].probabilities[313:] > 0.9)) * 0.032
    spoken = [loud, loud + 0.4, loud + 0.8]
    checked = check_words(words(2.0, 2.5, 6.0, *spoken), hearing)
    assert [word.start for word in checked.words] == pytest.approx(spoken)
    assert [(segment.first_word, segment.last_word) for segment in checked.segments] == [(0, 2)]
    assert [(gone.text, gone.channel) for gone in checked.dropped] == [("w2 w2.5", 0), ("w6", 0)]
    assert all(word.doubtful for gone in checked.dropped for word in gone.words)


def test_a_chunk_is_invented_where_all_it_adds_was_dropped(talk: Floats) -> None:
    hearing = heard(talk)
    loud = 10 + float(np.argmax(hearing[0].probabilities[313:] > 0.9)) * 0.032
    noises, spoken = words(2.0, 2.5, 6.0), words(loud, loud + 0.4)
    checked = check_words([*noises, *spoken], hearing)
    chunks = [noises[:2], [*noises[2:], *spoken[:1]], spoken[1:], [], words(2.0, channel=1)]
    assert find_invented_lists(chunks, checked) == [True, False, False, False, False]
    assert find_invented_lists(chunks, check_words([*noises, *spoken], [])) == [False] * 5


def test_an_invented_chunk_leaves_no_hypotheses_in_the_transcript(talk: Floats) -> None:
    hearing = heard(talk)
    border, end = 10 * SAMPLE_RATE, len(talk)
    loud = 10 + float(np.argmax(hearing[0].probabilities[313:] > 0.9)) * 0.032
    chunks = [
        DecodedChunk(
            ChunkSpan(0, index, core_start=first, core_end=last, start=first, end=last),
            Recognition(words=tuple(words(*starts)), nbest=(NbestText(text="w", score=-1.0),)),
        )
        for index, (first, last, starts) in enumerate([(0, border, (2.0, 2.5)), (border, end, (loud,))])
    ]
    audio = AudioFacts(name="a", format="wav", sample_rate=SAMPLE_RATE, channels=1, duration=30.0)
    facts = ModelFacts(name="m", sha256="0")
    found = transcript_of(None, chunks, end, audio, facts, {}, listeners=hearing)
    assert [gone.text for gone in found.dropped] == ["w2 w2.5"]
    assert [each.start for each in found.nbest] == [10.0]
    deaf = transcript_of(None, chunks, end, audio, facts, {})
    assert [each.start for each in deaf.nbest] == [0.0, 10.0]


def test_a_doubtful_word_among_others_is_marked_and_kept(talk: Floats) -> None:
    hearing = heard(talk)
    loud = 10 + float(np.argmax(hearing[0].probabilities[313:] > 0.9)) * 0.032
    checked = check_words(words(loud - 0.9, loud), hearing)
    assert [word.doubtful for word in checked.words] == [True, False]
    assert checked.dropped == ()
    assert '"doubtful":true' in checked.words[0].model_dump_json()
    assert "doubtful" not in checked.words[1].model_dump_json()


def test_a_word_alone_that_is_timed_a_little_late_is_kept(talk: Floats) -> None:
    """Whisper put a title's "1." 0.2 s behind the word, into silence: doubtful, but no reason to drop it."""
    hearing = heard(np.concatenate([talk[: 12 * SAMPLE_RATE], noise(5.0, 1e-3)]))
    last = float(np.flatnonzero(hearing[0].probabilities >= 0.1)[-1] + 1) * 0.032
    checked = check_words(words(last + 0.2), hearing)
    assert [word.doubtful for word in checked.words] == [True]
    assert checked.dropped == ()
    assert check_words(words(last + 0.7), hearing).words == ()


def test_channels_are_judged_apart(talk: Floats) -> None:
    hearing = heard(talk, noise(30.0, 0.03))
    at = (11.5, 12.0, 13.0)
    checked = check_words(words(*at) + words(*at, channel=1), hearing)
    assert {word.channel for word in checked.words} == {0}
    assert {gone.channel for gone in checked.dropped} == {1}
    assert {span.channel for span in checked.spans} == {0, 1}
    assert [span.label for span in checked.spans if span.channel] == ["no_speech"]


def test_coverage_is_the_share_of_speech_that_has_words(talk: Floats) -> None:
    hearing = heard(talk)
    everywhere = words(*np.arange(10, 29.5, 0.4).tolist())
    assert check_words(everywhere, hearing).coverage == 1.0
    half = check_words([word for word in everywhere if word.start < 20], hearing).coverage
    assert half is not None
    assert 0.4 < half < 0.65
    assert check_words([], hearing).coverage == 0.0
    assert check_words([], heard(noise(10.0))).coverage is None


def test_spans_cover_the_recording(talk: Floats) -> None:
    spans = check_words([], heard(talk)).spans
    assert spans[0].start == 0
    assert spans[-1].end == len(talk) / SAMPLE_RATE
    assert all(a.end == b.start for a, b in pairwise(spans))
    assert {span.label for span in spans} == {"speech", "no_speech", "unclear"}


@pytest.mark.parametrize(("level", "silent"), [(0.0, True), (0.8e-3, True), (1.5e-3, False)])
def test_a_span_without_speech_is_silent_by_its_level_alone(level: float, silent: bool) -> None:
    """-62 and -56 dBFS; blocks of no length in particular, and a constant, which is no sound."""
    (listener,) = hearing = heard(noise(8.0, level) + np.float32(0.3))
    (span,) = check_words([], hearing).spans
    assert (span.label, span.silent) == ("no_speech", silent)
    assert ("silent" in span.model_dump()) == silent
    assert len(listener.levels) == 8 * SAMPLE_RATE // 512


def test_one_click_is_no_silence() -> None:
    samples = np.zeros(8 * SAMPLE_RATE, np.float32)
    samples[60_000:60_016] = 0.05
    (span,) = check_words([], heard(samples)).spans
    assert (span.label, span.silent) == ("no_speech", False)


def test_without_a_listener_nothing_is_said() -> None:
    checked = check_words(words(1.0), [])
    assert (checked.spans, checked.dropped, checked.coverage) == ((), (), None)
    assert not checked.words[0].doubtful


def test_words_of_dropped_segments_are_not_counted_for_their_speakers() -> None:
    said = [word.model_copy(update={"speaker": "speaker_0"}) for word in words(0.0, 0.5, 4.0)]
    transcript = transcript_in_api("job_1", ("a",)).model_copy(
        update={
            "words": tuple(said),
            "segments": (
                Segment(start=0, end=0.8, text="w0 w0.5", channel=0, first_word=0, last_word=1),
                Segment(start=4, end=4.3, text="w4", channel=0, first_word=2, last_word=2, flagged=True),
            ),
            "speakers": (Speaker(label="speaker_0", talk_seconds=1.1, words=3),),
        }
    )
    left = drop_flagged(transcript)
    assert left.text == "w0 w0.5"
    assert [speaker.words for speaker in left.speakers] == [2]
