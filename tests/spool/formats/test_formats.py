"""Every format shows every word; subtitles are fit to read."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.domain import AudioFacts, Coverage, ModelFacts, Segment, Transcript, Word
from spool.errors import InvalidRequest
from spool.formats import (
    CONTENT_TYPES,
    FORMATS,
    PRESETS,
    RULES,
    STORED,
    Cue,
    Preset,
    cues_of,
    render,
    render_bytes,
)
from tests.spool.formats.violations import violations_of

STAMP = r"(\d{2,}):(\d\d):(\d\d)[,.](\d{3})"


def transcript_of(*segments: list[Word], channels: str = "mix") -> Transcript:
    words: list[Word] = []
    records = []
    for inside in segments:
        text = " ".join(word.text for word in inside)
        first = len(words)
        words += inside
        records.append(
            Segment(
                start=inside[0].start,
                end=inside[-1].end,
                text=text,
                channel=inside[0].channel,
                first_word=first,
                last_word=len(words) - 1,
            )
        )
    duration = max((word.end for word in words), default=0.0)
    return Transcript(
        job="job_1",
        audio=AudioFacts(
            name="tape.wav", format="WAV/PCM_16", sample_rate=8000, channels=2, duration=duration
        ),
        model=ModelFacts(name="demo-tdt", sha256="0" * 64),
        options={"channels": channels},
        coverage=Coverage(audio_seconds=duration, covered_seconds=duration, speech_seconds=duration, ratio=1),
        text=" ".join(word.text for word in words),
        words=tuple(words),
        segments=tuple(sorted(records, key=lambda segment: segment.start)),
    )


def speech(text: str, start: float = 0.0, step: float = 0.4, channel: int = 0) -> list[Word]:
    return [
        Word(text=part, start=start + i * step, end=start + i * step + 0.3, confidence=0.5, channel=channel)
        for i, part in enumerate(text.split())
    ]


def times(stamp: str) -> list[tuple[int, int]]:
    found = re.findall(rf"^{STAMP} --> {STAMP}$", stamp, re.MULTILINE)
    out = []
    for match in found:
        h1, m1, s1, t1, h2, m2, s2, t2 = map(int, match)
        out.append((((h1 * 60 + m1) * 60 + s1) * 1000 + t1, ((h2 * 60 + m2) * 60 + s2) * 1000 + t2))
    return out


LONG = "the quick brown fox jumps over the lazy dog and then sleeps all day in the warm sun, dreaming of more"


def test_txt_is_one_line_a_segment() -> None:
    transcript = transcript_of(speech("It rained."), speech("Did it?", start=3))
    assert render(transcript, "txt") == "It rained.\nDid it?\n"


def test_srt_to_the_letter() -> None:
    transcript = transcript_of(speech("It rained."), speech("Did it?", start=3661.5))
    assert render(transcript, "srt") == (
        "1\n00:00:00,000 --> 00:00:00,833\nIt rained.\n\n2\n01:01:01,500 --> 01:01:02,333\nDid it?\n"
    )


def test_vtt_to_the_letter() -> None:
    transcript = transcript_of(speech("a<b & c>d"))
    assert render(transcript, "vtt") == "WEBVTT\n\n00:00:00.000 --> 00:00:01.100\na&lt;b &amp; c&gt;d\n"


def test_json_is_the_record() -> None:
    transcript = transcript_of(speech("It rained."))
    assert Transcript.model_validate_json(render(transcript, "json")) == transcript


@pytest.mark.parametrize("format_name", FORMATS)
def test_silence_renders_in_every_format(format_name: str) -> None:
    silence = transcript_of()
    model = ModelFacts(name="default", sha256="0")
    asked = silence.model_copy(update={"options": silence.options | {"lattice": 5.0}, "diarization": model})
    assert isinstance(render_bytes(asked, format_name), bytes)
    assert render(transcript_of(), "txt") == render(transcript_of(), "srt") == ""
    assert render(transcript_of(), "vtt") == "WEBVTT\n"


def test_every_format_has_a_content_type() -> None:
    assert set(CONTENT_TYPES) == set(FORMATS)
    assert set(STORED) == {"json", "txt", "srt", "vtt"}


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="choose one of json, txt, srt, vtt"):
        render_bytes(transcript_of(), "pdf")


def test_paragraphs_turn_at_pauses_at_channels_and_when_they_grow_long() -> None:
    spoken = [speech("It rained."), speech("All day.", start=1.5), speech("Then not.", start=9)]
    assert render(transcript_of(*spoken), "paragraphs") == "It rained. All day.\n\nThen not.\n"
    both = transcript_of(speech("Hello."), speech("Yes?", start=0.5, channel=1), channels="separate")
    assert render(both, "paragraphs") == "Channel 1: Hello.\n\nChannel 2: Yes?\n"
    flowing = [speech("word " * 30 + "end.", start=20.0 * at, step=0.6) for at in range(12)]
    lengths = [len(one) for one in render(transcript_of(*flowing), "paragraphs").split("\n\n")]
    assert len(lengths) > 1
    assert 700 <= max(lengths) <= 900


def test_tsv_and_ctm_to_the_letter() -> None:
    transcript = transcript_of(speech("It rained."), speech("Did\tit?", start=3))
    assert render(transcript, "tsv") == "start\tend\ttext\n0\t700\tIt rained.\n3000\t3700\tDid it?\n"
    assert render(transcript, "ctm").splitlines()[:2] == [
        "tape.wav 1 0.000 0.300 It 0.5000",
        "tape.wav 1 0.400 0.300 rained. 0.5000",
    ]
    both = transcript_of(speech("Hello."), speech("Yes?", start=0.5, channel=1), channels="separate")
    assert render(both, "tsv").splitlines()[2] == "500\t800\t2\tYes?"
    assert render(both, "ctm").splitlines()[1].split()[1] == "2"


def test_ttml_is_xml_that_says_the_same_as_the_subtitles() -> None:
    transcript = transcript_of(speech("a<b & c>d \x01"), speech(LONG, start=30))
    page = ElementTree.fromstring(render(transcript, "ttml"))
    cues = page.findall(".//{http://www.w3.org/ns/ttml}p")
    assert [cue.get("begin") for cue in cues][:2] == ["00:00:00.000", "00:00:30.000"]
    assert "".join(cues[0].itertext()) == "a<b & c>d \ufffd"
    assert len(cues) == len(cues_of(transcript))


def test_long_segments_become_cues_of_two_lines() -> None:
    cues = cues_of(transcript_of(speech(LONG)))
    assert len(cues) == 2
    assert cues[0].lines[-1].endswith("sun,") or len(cues[0].lines) == 2
    assert " ".join(" ".join(cue.lines) for cue in cues) == LONG


def test_a_short_word_stays_long_enough_where_there_is_room() -> None:
    parts = [speech("Yes."), speech("No.", start=0.8), speech("Well.", start=20)]
    cues = cues_of(transcript_of(*parts))
    assert [(cue.start, cue.end, cue.lines) for cue in cues] == [
        (0, 1100, ("Yes. No.",)),
        (20_000, 20_833, ("Well.",)),
    ]
    assert [(cue.start, cue.end) for cue in cues_of(transcript_of(*parts), "bbc")] == [
        (0, 1100),
        (20_000, 21_000),
    ]


def test_lines_and_cues_break_between_clauses() -> None:
    told = (
        "We came to the harbour in the evening, "
        "and my father said that the boats would never return to us again."
    )
    spoken = transcript_of(speech(told)).model_copy(update={"language": "en"})
    assert [cue.lines for cue in cues_of(spoken)] == [
        ("We came to the harbour in the evening,",),
        ("and my father said that the boats", "would never return to us again."),
    ]


def test_a_short_gap_is_closed_as_the_rules_say() -> None:
    sentences = [speech("This was said first in the talk."), speech("And this is what came after.", start=4)]
    (_, netflix), (_, bbc) = (
        [cue.end for cue in cues_of(transcript_of(*sentences), preset)][:1] * 2 for preset in PRESETS
    )
    assert (netflix, bbc) == (2700, 4000), "1.3 s are left, and shorter than the 1.5 s of the BBC"


def test_the_validator_names_each_broken_rule() -> None:
    cues = [
        Cue(0, 500, ("Hello there, all of you",), 0),
        Cue(510, 9000, ("x" * 50, "two", "three"), 0),
        Cue(520, 1600, ("Yes.",), 1),
    ]
    found = [(each.cue, each.rule, each.forced) for each in violations_of(cues, RULES["netflix"])]
    assert found == [
        (1, "reading_speed", True),
        (1, "shortest", True),
        (1, "gap", False),
        (2, "line_characters", False),
        (2, "lines", False),
        (2, "longest", False),
    ]


def test_a_word_that_lasts_too_long_does_not_hold_the_screen() -> None:
    word = Word(text="Ooooh", start=1.0, end=30.0, confidence=1)
    assert [(cue.start, cue.end) for cue in cues_of(transcript_of([word]))] == [(1000, 8000)]


def test_words_at_one_instant_are_still_shown_in_turn() -> None:
    words = [Word(text="word" * 10, start=5.0, end=5.0, confidence=1) for _ in range(6)]
    cues = cues_of(transcript_of(words))
    assert len(cues) == 3
    for first, second in pairwise(cues):
        assert first.start < first.end <= second.start


def test_a_word_wider_than_a_line_is_broken() -> None:
    cues = cues_of(transcript_of(speech("x" * 100)))
    assert "".join(line for cue in cues for line in cue.lines) == "x" * 100
    assert max(len(line) for cue in cues for line in cue.lines) <= 42


def test_channels_are_named_and_kept_apart() -> None:
    transcript = transcript_of(
        speech("hello there."), speech("mhm.", start=0.2, channel=1), channels="separate"
    )
    assert render(transcript, "txt") == "Channel 1: hello there.\nChannel 2: mhm.\n"
    assert "Channel 2: mhm." in render(transcript, "srt")
    assert "<v Channel 2>mhm." in render(transcript, "vtt")
    assert [cue.channel for cue in cues_of(transcript)] == [0, 1]


@given(
    st.lists(
        st.tuples(
            st.lists(st.text("abc.,& ", min_size=1, max_size=50), min_size=1, max_size=40),
            st.floats(0, 3),
            st.floats(0, 1.5),
            st.integers(0, 1),
        ),
        max_size=8,
    )
)
def test_subtitles_are_always_fit_to_read(parts: list[tuple[list[str], float, float, int]]) -> None:
    segments = []
    for channel in (0, 1):
        at = 0.0
        for texts, gap, step, where in parts:
            if where != channel:
                continue
            at += gap
            inside = []
            for text in texts:
                inside.append(Word(text=text, start=at, end=at + step, confidence=1, channel=channel))
                at += step
            segments.append(inside)
    transcript = transcript_of(*segments)
    shown: dict[int, str] = {0: "", 1: ""}
    for channel in (0, 1):
        mine = [cue for cue in cues_of(transcript) if cue.channel == channel]
        for first, second in pairwise(mine):
            assert first.end <= second.start
        for cue in mine:
            assert 1 <= len(cue.lines) <= 2
            assert 0 < cue.end - cue.start <= 7000
            shown[channel] += "".join(cue.lines).replace(" ", "")
        spoken = "".join(word.text for word in transcript.words if word.channel == channel)
        assert shown[channel] == "".join(spoken.split())
    for name in ("srt", "vtt"):
        text = render(transcript, name)
        assert len(times(text)) == len(cues_of(transcript))
        lines = [line for line in text.replace("&amp;", "&").splitlines() if "-->" not in line]
        assert max((len(line) for line in lines), default=0) <= 42


@given(
    st.lists(
        st.tuples(
            st.lists(st.text("abcde.,é", min_size=1, max_size=14), min_size=1, max_size=60),
            st.floats(0, 3),
            st.floats(0.02, 1.2),
        ),
        max_size=6,
    ),
    st.sampled_from(PRESETS),
    st.sampled_from(["en", "de", None]),
)
def test_cues_break_only_rules_that_the_speech_makes_impossible(
    parts: list[tuple[list[str], float, float]], preset: Preset, language: str | None
) -> None:
    segments, at = [], 0.0
    for texts, gap, step in parts:
        at += gap
        segments.append(speech(" ".join(texts), start=at, step=step))
        at = segments[-1][-1].end
    transcript = transcript_of(*segments).model_copy(update={"language": language})
    cues = cues_of(transcript, preset)
    shown = [word for cue in cues for line in cue.lines for word in line.split()]
    assert shown == [word.text for word in transcript.words], "each word once, in order"
    assert all(first.end <= second.start for first, second in pairwise(cues))
    assert [each for each in violations_of(cues, RULES[preset]) if not each.forced] == []


@given(st.lists(st.text("abcde", min_size=1, max_size=8), min_size=3, max_size=60), st.sampled_from(PRESETS))
def test_slow_speech_breaks_no_rule(texts: list[str], preset: Preset) -> None:
    cues = cues_of(transcript_of(speech(" ".join(texts), step=0.75)), preset)
    assert violations_of(cues, RULES[preset]) == []


def test_rules_of_subtitles_are_for_subtitles() -> None:
    with pytest.raises(InvalidRequest, match="subtitles=bbc is for srt, vtt, ttml, and not for docx"):
        render_bytes(transcript_of(), "docx", "bbc")
    spoken = transcript_of(speech(LONG))
    assert render(spoken, "srt", "bbc") != render(spoken, "srt") == render(spoken, "srt", "netflix")
