"""Word documents and the files of ELAN and Praat, read by libraries that others read them with."""

import io
import lzma
import re
import warnings
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import docx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from pympi.Elan import Eaf
from pympi.Praat import TextGrid

from spool.domain import (
    AudioFacts,
    Coverage,
    Edit,
    ModelFacts,
    Segment,
    Speaker,
    Transcript,
    Word,
    apply_edits,
    read_typescript,
)
from spool.formats import Annotation, pbcore, render_bytes, tiers_of

GOLDEN = Path(__file__).parents[2] / "golden"
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"
Said = tuple[str, float, float, int, str | None]
"""Text, start, seconds a word, channel, speaker."""
ODD = 'say "it": <b>&amp; \x00\x1b]0;x\x07 😀 \u202eكلم ]]>\ttab\r\nnew'
READABLE = 'say "it": <b>&amp; \ufffd\ufffd]0;x\ufffd 😀 \u202eكلم ]]> tab new'


def transcript_of(
    *parts: Said, names: tuple[str | None, ...] = (), duration: float = 60.0, language: str | None = None
) -> Transcript:
    words: list[Word] = []
    segments: list[Segment] = []
    for text, start, step, channel, speaker in parts:
        first = len(words)
        for index, word in enumerate(re.split("[ \t\r\n]+", text)):
            at = start + index * step
            words.append(
                Word(text=word, start=at, end=at + step, confidence=1, channel=channel, speaker=speaker)
            )
        segments.append(
            Segment(
                start=start,
                end=words[-1].end,
                text=text,
                channel=channel,
                first_word=first,
                last_word=len(words) - 1,
                speaker=speaker,
            )
        )
    return Transcript(
        audio=AudioFacts(
            name="box 4/tape <1>.wav", format="WAV", sample_rate=8000, channels=2, duration=duration
        ),
        model=ModelFacts(name="demo-tdt", sha256="0" * 64),
        options={"channels": "mix"},
        coverage=Coverage(audio_seconds=duration, covered_seconds=duration, speech_seconds=0, ratio=1),
        text="",
        words=tuple(words),
        segments=tuple(sorted(segments, key=lambda each: each.start)),
        speakers=tuple(
            Speaker(label=f"speaker_{number}", name=name, talk_seconds=1, words=1)
            for number, name in enumerate(names)
        ),
        language=language,
    )


def read_eaf(transcript: Transcript, folder: Path) -> Eaf:
    path = folder / "tape.eaf"
    path.write_bytes(render_bytes(transcript, "eaf"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Eaf(str(path))


def read_textgrid(transcript: Transcript, folder: Path) -> dict[str, list[tuple[float, float, str]]]:
    path = folder / "tape.TextGrid"
    path.write_bytes(render_bytes(transcript, "textgrid"))
    grid = TextGrid(str(path))
    assert grid.xmin == 0
    for tier in grid.tiers:
        assert (tier.intervals[0][0], tier.intervals[-1][1]) == (0, grid.xmax)
        assert all(first[1] == second[0] for first, second in pairwise(tier.intervals))
        assert all(start < end for start, end, _ in tier.intervals)
    return {tier.name: [each for each in tier.intervals if each[2]] for tier in grid.tiers}


TALK = transcript_of(
    ("It rained.", 1.0, 0.5, 0, "speaker_0"),
    (ODD, 1.25, 0.125, 0, "speaker_1"),
    ("All day.", 3.0, 0.5, 0, "speaker_0"),
    names=('Ada "A" <Lund>', None),
    language="en",
)


def test_elan_reads_segments_with_their_words(tmp_path: Path) -> None:
    eaf = read_eaf(TALK, tmp_path)
    ada, other = 'Ada "A" <Lund>', "Speaker 2"
    assert list(eaf.get_tier_names()) == [ada, f"{ada} words", other, f"{other} words"]
    assert eaf.get_annotation_data_for_tier(ada) == [(1000, 2000, "It rained."), (3000, 4000, "All day.")]
    assert eaf.get_annotation_data_for_tier(f"{ada} words")[:2] == [
        (1000, 1500, "It"),
        (1500, 2000, "rained."),
    ]
    assert [text for _, _, text in eaf.get_annotation_data_for_tier(other)] == [READABLE]
    words = eaf.get_parameters_for_tier(f"{other} words")
    assert (words["PARENT_REF"], words["LANG_REF"]) == (other, "en")
    assert eaf.linguistic_types["word"]["CONSTRAINTS"] in eaf.constraints
    assert eaf.get_linked_files()[0]["RELATIVE_MEDIA_URL"] == "./tape%20%3C1%3E.wav"
    assert list(eaf.timeslots.values()) == sorted(eaf.timeslots.values())


def test_praat_reads_the_same(tmp_path: Path) -> None:
    tiers = read_textgrid(TALK, tmp_path)
    ada = 'Ada "A" <Lund>'
    assert tiers[ada] == [(1.0, 2.0, "It rained."), (3.0, 4.0, "All day.")]
    assert tiers[f"{ada} words"][-1] == (3.5, 4.0, "day.")
    assert [text for _, _, text in tiers["Speaker 2"]] == [READABLE]


def test_word_shows_who_says_what_and_when() -> None:
    document = docx.Document(io.BytesIO(render_bytes(TALK, "docx")))
    lines = [paragraph.text for paragraph in document.paragraphs]
    assert lines[:2] == ["box 4/tape <1>.wav", "0:01:00 · en · demo-tdt"]
    assert lines[2:4] == ['Ada "A" <Lund> [0:00:01]', "It rained."]
    assert lines[4] == "Speaker 2 [0:00:01]"
    assert "".join(lines[5].split()) == "".join(READABLE.split())
    assert lines[6:] == ['Ada "A" <Lund> [0:00:03]', "All day."]
    assert document.core_properties.title == "box 4/tape <1>.wav"
    assert document.core_properties.created is None


def test_a_document_has_the_same_bytes_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    first = render_bytes(TALK, "docx")
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert render_bytes(TALK, "docx") == first


def test_ohms_takes_paragraphs_of_one_line_and_one_voice() -> None:
    text = render_bytes(TALK, "ohms").decode()
    header, *cues = text.rstrip("\n").split("\n\n")
    assert header == "WEBVTT"
    assert [cue.split("\n")[0] for cue in cues] == [
        "00:00:01.000 --> 00:00:02.000",
        "00:00:01.250 --> 00:00:02.375",
        "00:00:03.000 --> 00:00:04.000",
    ]
    assert all(len(cue.split("\n")) == 2 for cue in cues)
    assert cues[0].endswith('<v Ada "A" &lt;Lund&gt;>It rained.</v>')
    spoken = read_typescript(text.encode(), "tape.ohms.vtt")
    assert [word.speaker for word in spoken if word.text in ("rained.", "day.")] == ['Ada "A" <Lund>'] * 2


def test_ohms_has_a_time_every_half_minute_at_least_where_one_speaks_on() -> None:
    parts: list[Said] = [("and so on", at * 10.0, 3.0, 0, "speaker_0") for at in range(9)]
    lines = render_bytes(transcript_of(*parts, names=("Ada",)), "ohms").decode().split("\n")
    assert [line[:12] for line in lines if "-->" in line] == ["00:00:00.000", "00:00:30.000", "00:01:00.000"]
    assert lines.count("<v Ada>and so on and so on and so on</v>") == 3


@pytest.mark.parametrize("duration", [0.0, 12.5])
def test_a_recording_without_words_can_be_opened(tmp_path: Path, duration: float) -> None:
    silent = transcript_of(duration=duration)
    assert read_textgrid(silent, tmp_path) == {"transcript": [], "transcript words": []}
    eaf = read_eaf(silent, tmp_path)
    assert eaf.get_annotation_data_for_tier("transcript") == []
    assert len(docx.Document(io.BytesIO(render_bytes(silent, "docx"))).paragraphs) == 2


def test_tiers_have_names_of_their_own(tmp_path: Path) -> None:
    parts: list[Said] = [("a", float(at), 0.5, 0, f"speaker_{at}") for at in range(4)]
    transcript = transcript_of(*parts, names=("Ada", "ada", "Ada words", "Ada"))
    assert len(read_eaf(transcript, tmp_path).get_tier_names()) == 8
    assert list(read_textgrid(transcript, tmp_path))[::2] == [
        "Ada",
        "ada (speaker_1)",
        "Ada words (speaker_2)",
        "Ada (speaker_3)",
    ]


TEI = "{http://www.tei-c.org/ns/1.0}"


@pytest.fixture(scope="module")
def tei_schema() -> etree.RelaxNG:
    return etree.RelaxNG(etree.fromstring(lzma.decompress((GOLDEN / "schemas/tei.rng.xz").read_bytes())))


def test_tei_is_valid_and_has_every_word_at_its_moment(tei_schema: etree.RelaxNG) -> None:
    parts: list[Said] = [(ODD, 1.25, 0.5, 0, "speaker_0"), ("No. I saw.", 9.0, 0.25, 0, "speaker_1")]
    talk = transcript_of(*parts, names=("Ada <Lund>", None), language="en")
    page = etree.fromstring(render_bytes(talk, "tei"))
    tei_schema.assertValid(page)
    moments = {when.get(XML_ID): float(when.get("interval", 0)) for when in page.iter(f"{TEI}when")}
    words = [(each.text, moments[each.get("synch").removeprefix("#")]) for each in page.iter(f"{TEI}w")]
    assert words[-3:] == [("No.", 9.0), ("I", 9.25), ("saw.", 9.5)]
    assert [text for text, _ in words[:-3]] == READABLE.split(" ")
    assert "".join(list(page.iter(f"{TEI}u"))[1].itertext()) == "No. I saw."
    people = {each.get(XML_ID): "".join(each.itertext()) for each in page.iter(f"{TEI}person")}
    assert people == {"speaker_0": "Ada <Lund>", "speaker_1": "Speaker 2"}
    assert [each.get("who") for each in page.iter(f"{TEI}u")] == ["#speaker_0", "#speaker_1"]


def test_tei_names_who_corrected(tei_schema: etree.RelaxNG) -> None:
    talk = transcript_of(("Keep the light.", 0.0, 0.5, 0, None))
    edit = Edit(1, 1, 1, "a", None, "Ada", datetime(2026, 1, 1, tzinfo=UTC))
    page = etree.fromstring(render_bytes(apply_edits(talk, [edit]), "tei"))
    tei_schema.assertValid(page)
    assert [each.text for each in page.iter(f"{TEI}name")] == ["Spool with the model demo-tdt", "Ada"]


def test_tei_of_channels_and_of_silence_is_valid(tei_schema: etree.RelaxNG) -> None:
    both = transcript_of(("Hello.", 0.0, 0.5, 0, None), ("Yes?", 0.2, 0.5, 1, None))
    page = etree.fromstring(render_bytes(both, "tei"))
    tei_schema.assertValid(page)
    assert [each.get("who") for each in page.iter(f"{TEI}u")] == ["#channel_0", "#channel_1"]
    tei_schema.assertValid(etree.fromstring(render_bytes(transcript_of(), "tei")))


PBCORE = "{http://www.pbcore.org/PBCore/PBCoreNamespace.html}"


@pytest.fixture(scope="module")
def pbcore_rules() -> etree.RelaxNG:
    return etree.RelaxNG(etree.parse(str(GOLDEN / "schemas/pbcore.rng")))


def pbcore_texts(page: etree._Element, name: str) -> list[str]:
    return [each.text or "" for each in page.iter(f"{PBCORE}{name}")]


def test_pbcore_follows_the_rules_and_has_each_paragraph_with_its_times(pbcore_rules: etree.RelaxNG) -> None:
    page = etree.fromstring(render_bytes(TALK, "pbcore"))
    pbcore_rules.assertValid(page)
    assert pbcore_texts(page, "pbcoreTitle") == ["box 4/tape <1>.wav"]
    ada = 'Ada "A" <Lund>: '
    told = pbcore_texts(page, "pbcoreDescription")
    assert [told[0], told[-1]] == [f"{ada}It rained.", f"{ada}All day."]
    assert told[1].startswith('Speaker 2: say "it": <b>&amp;')
    first, *_, last = page.iter(f"{PBCORE}pbcoreDescription")
    assert (first.get("startTime"), last.get("endTime")) == ("00:00:01.000", "00:00:04.000")
    assert pbcore_texts(page, "contributor") == ['Ada "A" <Lund>', "Speaker 2"]
    assert pbcore_texts(page, "instantiationDuration") == ["00:01:00.000"]
    assert pbcore_texts(page, "instantiationLanguage") == ["eng"]
    assert pbcore_texts(page, "instantiationLocation") == pbcore_texts(page, "pbcoreTitle")
    assert pbcore_texts(page, "pbcoreAnnotation") == ["Spool with the model demo-tdt"]


def test_pbcore_has_addresses_where_there_is_one(pbcore_rules: etree.RelaxNG) -> None:
    page = etree.fromstring(pbcore(TALK, "https://archive.example/v1/jobs/job_1").encode())
    pbcore_rules.assertValid(page)
    (url,) = page.iterfind(f"{PBCORE}pbcoreAnnotation[@annotationType='Transcript URL']")
    assert url.text == "https://archive.example/v1/jobs/job_1/transcript?format=json"
    assert pbcore_texts(page, "instantiationLocation") == ["https://archive.example/v1/jobs/job_1/audio"]


@pytest.mark.parametrize("language", ["yue", "xx", None])
def test_pbcore_of_silence_and_of_odd_languages_follows_the_rules(
    pbcore_rules: etree.RelaxNG, language: str | None
) -> None:
    page = etree.fromstring(render_bytes(transcript_of(language=language), "pbcore"))
    pbcore_rules.assertValid(page)
    assert pbcore_texts(page, "instantiationLanguage") == (["yue"] if language == "yue" else [])
    assert pbcore_texts(page, "pbcoreDescription") == ["No speech was recognised."]


@pytest.mark.parametrize("name", ["pbcoreIdentifier", "pbcoreDescription", "instantiationLocation"])
def test_the_rules_of_pbcore_refuse_a_record_that_lacks_something(
    pbcore_rules: etree.RelaxNG, name: str
) -> None:
    page = etree.fromstring(render_bytes(transcript_of(), "pbcore"))
    (needed,) = page.iter(f"{PBCORE}{name}")
    parent = needed.getparent()
    assert parent is not None
    parent.remove(needed)
    assert not pbcore_rules.validate(page)
    parent.append(needed)
    assert not pbcore_rules.validate(page), "and one in another order"


@given(
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=30),
            st.floats(0, 30),
            st.floats(0, 0.5),
            st.integers(0, 1),
            st.sampled_from(["speaker_0", "speaker_1", None]),
        ),
        max_size=6,
    )
)
def test_nothing_overlaps_and_no_word_is_lost(parts: list[Said]) -> None:
    transcript = transcript_of(*parts, names=(None, None))
    for tier in tiers_of(transcript):
        for items in (tier.segments, tier.words):
            assert all(item.start < item.end for item in items)
            assert all(first.end <= second.start for first, second in pairwise(items))
        assert all(any(_inside(word, segment) for segment in tier.segments) for word in tier.words)
    written = sorted(word.text for tier in tiers_of(transcript) for word in tier.words)
    assert len(written) == sum(bool(word.text.split()) for word in transcript.words)


def _inside(word: Annotation, segment: Annotation) -> bool:
    return segment.start <= word.start and word.end <= segment.end
