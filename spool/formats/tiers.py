"""Files of annotation tools: ELAN's EAF and Praat's TextGrid.

Both have two tiers for each speaker (or channel, if speakers were not told apart): segments, and their words.
Annotations of one tier may not overlap in either tool, so a segment or word begins no sooner than the one
before it ended, and lasts at least a millisecond. Simultaneous speakers have separate tiers and keep their
times.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from spool.domain.transcript import Segment, Transcript, Word
from spool.formats.text import replace_non_xml, text_language, voices_of

_MIME_TYPES = {".wav": "audio/x-wav", ".mp3": "audio/mpeg", ".mp4": "video/mp4", ".m4a": "audio/mp4"}


@dataclass(frozen=True)
class Annotation:
    """A text from `start` to `end`, in milliseconds; `start` < `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Tier:
    """The annotations of one voice. `segments` and `words` are in order and do not overlap; each word is
    inside a segment."""

    name: str
    """Unique within the transcript, also ignoring case."""
    segments: tuple[Annotation, ...]
    words: tuple[Annotation, ...]


def eaf(transcript: Transcript) -> str:
    """ELAN annotation format 3.0. Words are time-aligned annotations inside those of their segments
    (`Included_In`). The date that the format requires is always the same, since a transcript states none."""
    schema = "{http://www.w3.org/2001/XMLSchema-instance}noNamespaceSchemaLocation"
    root = Element(
        "ANNOTATION_DOCUMENT",
        {
            "AUTHOR": "Spool",
            "DATE": "1970-01-01T00:00:00+00:00",
            "FORMAT": "3.0",
            "VERSION": "3.0",
            schema: "http://www.mpi.nl/tools/elan/EAFv3.0.xsd",
        },
    )
    header = SubElement(root, "HEADER", {"MEDIA_FILE": "", "TIME_UNITS": "milliseconds"})
    SubElement(header, "MEDIA_DESCRIPTOR", _media(transcript.audio.name))
    slots = SubElement(root, "TIME_ORDER")
    language = text_language(transcript)
    annotations: list[tuple[Annotation, Element]] = []
    for tier in tiers_of(transcript):
        common = {"PARTICIPANT": tier.name} | ({"LANG_REF": language} if language else {})
        levels = (
            ({"TIER_ID": tier.name, "LINGUISTIC_TYPE_REF": "segment"}, tier.segments),
            (
                {"TIER_ID": f"{tier.name} words", "LINGUISTIC_TYPE_REF": "word", "PARENT_REF": tier.name},
                tier.words,
            ),
        )
        for attributes, items in levels:
            parent = SubElement(root, "TIER", attributes | common)
            for item in items:
                element = SubElement(SubElement(parent, "ANNOTATION"), "ALIGNABLE_ANNOTATION")
                element.set("ANNOTATION_ID", f"a{len(annotations) + 1}")
                SubElement(element, "ANNOTATION_VALUE").text = item.text
                annotations.append((item, element))
    _add_slots(slots, annotations)
    _add_types(root, language)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def textgrid(transcript: Transcript) -> str:
    """Praat's long text format; stretches without an annotation are intervals without text."""
    tiers = tiers_of(transcript)
    ends = [tier.segments[-1].end for tier in tiers if tier.segments]
    last = max(_ms(transcript.audio.duration), *ends, 1)
    levels = [
        (name, items)
        for tier in tiers
        for name, items in ((tier.name, tier.segments), (f"{tier.name} words", tier.words))
    ]
    lines = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0",
        f"xmax = {_seconds(last)}",
        "tiers? <exists>",
        f"size = {len(levels)}",
        "item []:",
    ]
    for number, (name, items) in enumerate(levels, 1):
        intervals = list(_fill_gaps(items, last))
        lines += [
            f"    item [{number}]:",
            '        class = "IntervalTier"',
            f'        name = "{_quote(name)}"',
            "        xmin = 0",
            f"        xmax = {_seconds(last)}",
            f"        intervals: size = {len(intervals)}",
        ]
        for position, item in enumerate(intervals, 1):
            lines += [
                f"        intervals [{position}]:",
                f"            xmin = {_seconds(item.start)}",
                f"            xmax = {_seconds(item.end)}",
                f'            text = "{_quote(item.text)}"',
            ]
    return "\n".join([*lines, ""])


def tiers_of(transcript: Transcript) -> list[Tier]:
    """A tier for each speaker and channel, in the order in which they first speak; an empty one if nobody
    does."""
    voice_of = voices_of(transcript)
    names: dict[tuple[int, str | None], str] = {}
    segments: dict[tuple[int, str | None], list[Segment]] = {}
    for segment in transcript.segments:
        key = (segment.channel, segment.speaker)
        if key not in segments:
            names[key] = _make_unique(_plain(voice_of(segment)) or "transcript", key, names.values())
        segments.setdefault(key, []).append(segment)
    if not segments:
        return [Tier("transcript", (), ())]
    return [_tier(names[key], spoken, transcript.words) for key, spoken in segments.items()]


def _make_unique(name: str, key: tuple[int, str | None], names: Iterable[str]) -> str:
    """`name`, made unique if another tier or its words' tier has that name."""
    taken = {other.casefold() for each in names for other in (each, f"{each} words")}
    channel, speaker = key
    detail = speaker or f"channel {channel + 1}"
    numbered = (f"{name} ({detail}) {number}" for number in range(2, len(taken) + 3))
    for candidate in (name, f"{name} ({detail})", *numbered):
        if not taken & {candidate.casefold(), f"{candidate} words".casefold()}:
            return candidate
    raise AssertionError("there are more candidates than names")


def _tier(name: str, segments: Iterable[Segment], words: tuple[Word, ...]) -> Tier:
    """The segments and words of one voice, moved where they overlap."""
    laid_segments: list[Annotation] = []
    laid_words: list[Annotation] = []
    free = 0
    for segment in sorted(segments, key=lambda each: (each.start, each.first_word)):
        start = max(_ms(segment.start), free)
        inside = [
            word
            for word in words[segment.first_word : segment.last_word + 1]
            if word.channel == segment.channel and _plain(word.text)
        ]
        laid = list(_lay_out(inside, start))
        end = max([_ms(segment.end), start + 1, *(word.end for word in laid[-1:])])
        laid_segments.append(Annotation(start, end, _plain(segment.text)))
        laid_words += laid
        free = end
    return Tier(name, tuple(laid_segments), tuple(laid_words))


def _lay_out(words: list[Word], free: int) -> Iterator[Annotation]:
    """Words one after another from `free` on, each ending by the time the next one begins."""
    for index, word in enumerate(words):
        start = max(_ms(word.start), free)
        end = _ms(word.end)
        if index + 1 < len(words):
            end = min(end, _ms(words[index + 1].start))
        free = max(end, start + 1)
        yield Annotation(start, free, _plain(word.text))


def _fill_gaps(items: Iterable[Annotation], last: int) -> Iterator[Annotation]:
    """The annotations, and empty ones between them, from 0 to `last`."""
    end = 0
    for item in items:
        if item.start > end:
            yield Annotation(end, item.start, "")
        yield item
        end = item.end
    if end < last:
        yield Annotation(end, last, "")


def _add_slots(slots: Element, annotations: list[tuple[Annotation, Element]]) -> None:
    """Write the times in order, and into each annotation the two that it uses."""
    times = [
        (time, place, element)
        for item, element in annotations
        for time, place in ((item.start, "TIME_SLOT_REF1"), (item.end, "TIME_SLOT_REF2"))
    ]
    for number, (time, place, element) in enumerate(sorted(times, key=lambda each: each[0]), 1):
        SubElement(slots, "TIME_SLOT", {"TIME_SLOT_ID": f"ts{number}", "TIME_VALUE": str(time)})
        element.set(place, f"ts{number}")


def _add_types(root: Element, language: str) -> None:
    common = {"GRAPHIC_REFERENCES": "false", "TIME_ALIGNABLE": "true"}
    SubElement(root, "LINGUISTIC_TYPE", {"LINGUISTIC_TYPE_ID": "segment"} | common)
    SubElement(root, "LINGUISTIC_TYPE", {"LINGUISTIC_TYPE_ID": "word", "CONSTRAINTS": "Included_In"} | common)
    if language:
        SubElement(root, "LANGUAGE", {"LANG_ID": language, "LANG_LABEL": language})
    description = "Time alignable annotations within the parent annotation's time interval, gaps are allowed"
    SubElement(root, "CONSTRAINT", {"STEREOTYPE": "Included_In", "DESCRIPTION": description})


def _media(recording: str) -> dict[str, str]:
    """The recording, expected beside the EAF file."""
    path = PurePosixPath(_plain(recording).replace("\\", "/"))
    url = f"./{quote(path.name or 'recording')}"
    mime_type = _MIME_TYPES.get(path.suffix.lower(), "unknown")
    return {"MEDIA_URL": url, "RELATIVE_MEDIA_URL": url, "MIME_TYPE": mime_type}


def _plain(text: str) -> str:
    """One line without characters that XML cannot contain."""
    return replace_non_xml(" ".join(text.split()))


def _quote(text: str) -> str:
    return text.replace('"', '""')


def _seconds(milliseconds: int) -> str:
    seconds, thousandths = divmod(milliseconds, 1000)
    return f"{seconds}.{thousandths:03}"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
