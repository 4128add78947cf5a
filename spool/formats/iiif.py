"""IIIF: a manifest of the Presentation API 3.0, for viewers such as Mirador, Universal Viewer and Aviary.

A manifest consists of addresses, so only the API, which knows its own, can write one. The recording is
painted on one canvas, and the transcript supplements it as WebVTT.
"""

import json
import mimetypes

from spool.domain.transcript import Transcript
from spool.formats.text import text_language

IIIF_TYPE = 'application/ld+json;profile="http://iiif.io/api/presentation/3/context.json"'
_SHORTEST_S = 0.001
"""A canvas has to last longer than 0 s."""


def manifest(transcript: Transcript, address: str) -> str:
    """The manifest of the job at `address`, `https://…/v1/jobs/ID`."""
    language = text_language(transcript) or "none"
    label = {"none": [transcript.audio.name]}
    lasts = max(transcript.audio.duration, _SHORTEST_S)
    canvas = f"{address}/canvas"
    media = mimetypes.guess_type(transcript.audio.name)[0] or ""
    recording = {
        "id": f"{address}/audio",
        "type": "Video" if media.startswith("video/") else "Sound",
        "duration": lasts,
        **({"format": media} if media.startswith(("audio/", "video/")) else {}),
    }
    words = {
        "id": f"{address}/transcript?format=vtt",
        "type": "Text",
        "format": "text/vtt",
        "label": {"en": ["Transcript (WebVTT)"]},
        **({"language": language} if language != "none" else {}),
    }
    pages = {
        name: [
            {
                "id": f"{canvas}/{name}",
                "type": "AnnotationPage",
                "items": [
                    {
                        "id": f"{canvas}/{name}/1",
                        "type": "Annotation",
                        "motivation": motivation,
                        "body": body,
                        "target": canvas,
                    }
                ],
            }
        ]
        for name, motivation, body in (
            ("items", "painting", recording),
            ("annotations", "supplementing", words),
        )
    }
    document = {
        "@context": "http://iiif.io/api/presentation/3/context.json",
        "id": f"{address}/transcript?format=iiif",
        "type": "Manifest",
        "label": label,
        "metadata": [
            {
                "label": {"en": ["Transcribed by"]},
                "value": {"none": [f"Spool with the model {transcript.model.name}"]},
            }
        ],
        "items": [{"id": canvas, "type": "Canvas", "label": label, "duration": lasts, **pages}],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
