"""What the OpenAPI page says of the overview, the metrics and the recordings."""

from fastapi import Response
from fastapi.responses import StreamingResponse

from api import examples
from api.audio import AudioLink
from api.described import EVERYWHERE, Words, answer, problems
from api.overview import Overview

OVERVIEW: Words = {
    "summary": "See where everything stands",
    "responses": answer(200, "Counts, queues and today's sums.", Overview, examples.OVERVIEW),
}

AUDIO_LINK: Words = {
    "summary": "Get a link to the recording",
    "response_model": AudioLink,
    "responses": answer(200, "A link that a player can open.", AudioLink, examples.AUDIO_LINK)
    | problems("not_found", "not_here"),
}

_SOUND: Words = {"audio/*": {"schema": {"type": "string", "format": "binary"}, "example": "RIFF…"}}

AUDIO: Words = {
    "summary": "Listen to the recording",
    "response_class": StreamingResponse,
    "responses": EVERYWHERE
    | {
        200: {"description": "The recording.", "content": _SOUND},
        206: {"description": "The part of it that `Range` asked for.", "content": _SOUND},
    }
    | problems("unauthorized", "not_found", "not_here", "no_such_range"),
}

METRICS: Words = {
    "summary": "Read the metrics",
    "response_class": Response,
    "responses": EVERYWHERE
    | {
        200: {
            "description": "Prometheus' text form.",
            "content": {
                "text/plain": {
                    "schema": {"type": "string"},
                    "example": 'spool_jobs_queued{pool="metal"} 1204.0\n',
                }
            },
        }
    },
}
