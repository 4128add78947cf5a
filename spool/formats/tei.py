"""TEI: the Text Encoding Initiative's XML, as its chapter 8 and ISO 24624 write down speech.

Each segment is an utterance (`u`) of a speaker, or of a channel; its words (`w`) point to the moments of a
timeline. Speakers are described in the header.
"""

from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from spool.domain.spacing import is_apart
from spool.domain.transcript import Segment, Transcript
from spool.formats.text import replace_non_xml, speaker_name, text_language, voices_of

_XML = "{http://www.w3.org/XML/1998/namespace}"


def tei(transcript: Transcript) -> str:
    """A TEI P5 document. It states no date, since a transcript states none."""
    root = Element("TEI", {"xmlns": "http://www.tei-c.org/ns/1.0"})
    _add_header(root, transcript)
    text = SubElement(root, "text")
    if language := text_language(transcript):
        text.set(f"{_XML}lang", language)
    _add_timeline(text, transcript)
    body = SubElement(text, "body")
    voice_of = voices_of(transcript)
    for segment in transcript.segments:
        who = segment.speaker or (f"channel_{segment.channel}" if voice_of(segment) else "")
        _add_utterance(body, transcript, segment, who)
    if not transcript.segments:
        SubElement(body, "p")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add_header(root: Element, transcript: Transcript) -> None:
    header = SubElement(root, "teiHeader")
    file = SubElement(header, "fileDesc")
    title = SubElement(file, "titleStmt")
    SubElement(title, "title").text = replace_non_xml(transcript.audio.name)
    responsible = SubElement(title, "respStmt")
    SubElement(responsible, "resp").text = "automatic transcription"
    SubElement(responsible, "name").text = replace_non_xml(f"Spool with the model {transcript.model.name}")
    if transcript.corrections:
        responsible = SubElement(title, "respStmt")
        SubElement(responsible, "resp").text = "corrections"
        for name in sorted({replace_non_xml(each.author) for each in transcript.corrections}):
            SubElement(responsible, "name").text = name
    SubElement(SubElement(file, "publicationStmt"), "p").text = f"Transcript of {transcript.job or 'a file'}"
    recordings = SubElement(SubElement(file, "sourceDesc"), "recordingStmt")
    recording = SubElement(recordings, "recording", {"type": "audio"})
    recording.set("dur", f"PT{transcript.audio.duration:.3f}S")
    SubElement(recording, "p").text = replace_non_xml(transcript.audio.name)
    _add_profile(header, transcript)


def _add_profile(header: Element, transcript: Transcript) -> None:
    voice_of = voices_of(transcript)
    voices = {each.label: speaker_name(each) for each in transcript.speakers}
    for segment in transcript.segments:
        if not segment.speaker and (voice := voice_of(segment)):
            voices[f"channel_{segment.channel}"] = voice
    language = text_language(transcript)
    if not (voices or language):
        return
    profile = SubElement(header, "profileDesc")
    if language:
        SubElement(SubElement(profile, "langUsage"), "language", {"ident": language})
    if voices:
        people = SubElement(SubElement(profile, "particDesc"), "listPerson")
        for label, name in voices.items():
            person = SubElement(people, "person", {f"{_XML}id": label})
            SubElement(person, "persName").text = replace_non_xml(name)


def _add_timeline(text: Element, transcript: Transcript) -> None:
    moments = {0} | {_ms(time) for each in transcript.segments for time in (each.start, each.end)}
    moments |= {_ms(word.start) for word in transcript.words}
    timeline = SubElement(text, "timeline", {"unit": "s", "origin": "#T0"})
    for moment in sorted(moments):
        when = SubElement(timeline, "when", {f"{_XML}id": f"T{moment}"})
        if moment:
            when.attrib |= {"interval": f"{moment / 1000:.3f}", "since": "#T0"}


def _add_utterance(body: Element, transcript: Transcript, segment: Segment, who: str) -> None:
    utterance = SubElement(body, "u", {"start": f"#T{_ms(segment.start)}", "end": f"#T{_ms(segment.end)}"})
    if who:
        utterance.set("who", f"#{who}")
    last: Element | None = None
    for word in transcript.words[segment.first_word : segment.last_word + 1]:
        written = replace_non_xml(word.text)
        if last is not None and is_apart(last.text or "", written):
            last.tail = " "
        last = SubElement(utterance, "w", {"synch": f"#T{_ms(word.start)}"})
        last.text = written


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
