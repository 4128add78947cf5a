"""PBCore 2.1: the catalogue record of public broadcasters and of archives of sound and film.

The recording is the asset and its file the one instantiation. The transcript's paragraphs are descriptions of
the type `Transcript`, each with its times; speakers are contributors. A record that the API writes has also
the addresses of the file and of the transcript, as the American Archive of Public Broadcasting reads them.
"""

import mimetypes
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from spool.domain.spacing import join_words
from spool.domain.transcript import Transcript
from spool.formats.languages import three_letters
from spool.formats.text import group_segments, prefix, replace_non_xml, speaker_name, voices_of

_NAMESPACE = "http://www.pbcore.org/PBCore/PBCoreNamespace.html"


def pbcore(transcript: Transcript, address: str = "") -> str:
    """A `pbcoreDescriptionDocument`; `address` is that of the job, `https://…/v1/jobs/ID`, if known."""
    root = Element("pbcoreDescriptionDocument", {"xmlns": _NAMESPACE})
    source = "Spool" if transcript.job else "File name"
    _add(root, "pbcoreIdentifier", transcript.job or transcript.audio.name, source=source)
    _add(root, "pbcoreTitle", transcript.audio.name)
    _add_descriptions(root, transcript)
    for speaker in transcript.speakers:
        contributor = SubElement(root, "pbcoreContributor")
        _add(contributor, "contributor", speaker_name(speaker))
        _add(contributor, "contributorRole", "Speaker")
    _add_instantiation(root, transcript, address)
    _add(root, "pbcoreAnnotation", _makers(transcript), annotationType="Transcript Source")
    if address:
        text = f"{address}/transcript?format=json"
        _add(root, "pbcoreAnnotation", text, annotationType="Transcript URL")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add_descriptions(root: Element, transcript: Transcript) -> None:
    voice_of = voices_of(transcript)
    for group in group_segments(transcript):
        text = prefix(voice_of(group[0])) + join_words(segment.text for segment in group)
        times = {"startTime": _clock(group[0].start), "endTime": _clock(max(each.end for each in group))}
        _add(root, "pbcoreDescription", text, descriptionType="Transcript", **times)
    if not transcript.segments:
        _add(root, "pbcoreDescription", "No speech was recognised.", descriptionType="Transcript")


def _add_instantiation(root: Element, transcript: Transcript, address: str) -> None:
    audio = transcript.audio
    media = mimetypes.guess_type(audio.name)[0] or ""
    instantiation = SubElement(root, "pbcoreInstantiation")
    _add(instantiation, "instantiationIdentifier", audio.name, source="File name")
    if media:
        _add(instantiation, "instantiationDigital", media)
    _add(instantiation, "instantiationLocation", f"{address}/audio" if address else audio.name)
    kind = "Moving Image" if media.startswith("video/") else "Sound"
    _add(instantiation, "instantiationMediaType", kind)
    _add(instantiation, "instantiationDuration", _clock(audio.duration))
    if language := three_letters(transcript.language):
        _add(instantiation, "instantiationLanguage", language, source="ISO 639-3")
    track = SubElement(instantiation, "instantiationEssenceTrack")
    _add(track, "essenceTrackType", "Audio")
    _add(track, "essenceTrackSamplingRate", f"{audio.sample_rate / 1000:g}", unitsOfMeasure="kHz")
    _add(track, "essenceTrackAnnotation", str(audio.channels), annotationType="Channels")


def _makers(transcript: Transcript) -> str:
    editors = sorted({each.author for each in transcript.corrections})
    corrected = f", corrected by {', '.join(editors)}" if editors else ""
    return f"Spool with the model {transcript.model.name}{corrected}"


def _add(parent: Element, name: str, text: str, **attributes: str) -> None:
    SubElement(parent, name, attributes).text = replace_non_xml(text)


def _clock(seconds: float) -> str:
    ms = round(seconds * 1000)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}"
