"""The OpenAPI texts of the overview, the metrics, recordings and OpenAI's route."""

from fastapi import Response
from fastapi.responses import StreamingResponse

from api.openapi.jobs import EVERYWHERE, Words, answer, describe, problems
from spool.schemas.examples import jobs
from spool.schemas.fleet import Overview
from spool.schemas.jobs import AudioLink

OVERVIEW = describe(
    "Show the overview", answer(200, "Counts, queues and today's totals.", Overview, jobs.OVERVIEW)
)

AUDIO_LINK = describe(
    "Get a link to the recording",
    answer(200, "A link that a player can open.", AudioLink, jobs.AUDIO_LINK),
    problems("not_found", "not_here", "deleted"),
    response_model=AudioLink,
)

_SOUND: Words = {"audio/*": {"schema": {"type": "string", "format": "binary"}, "example": "RIFF…"}}

AUDIO = describe(
    "Fetch the recording",
    EVERYWHERE,
    {
        200: {"description": "The recording.", "content": _SOUND},
        206: {"description": "The part of it that `Range` asks for.", "content": _SOUND},
        307: {"description": "A redirect to the bucket, for the bearer of a link, if configured."},
    },
    problems("unauthorized", "not_found", "not_here", "deleted", "no_such_range"),
    response_class=StreamingResponse,
)

METRICS = describe(
    "Read the metrics",
    EVERYWHERE,
    {
        200: {
            "description": "Metrics in the Prometheus text format.",
            "content": {
                "text/plain": {
                    "schema": {"type": "string"},
                    "example": 'spool_jobs_queued{pool="metal"} 1204.0\n',
                }
            },
        }
    },
    response_class=Response,
)

_FORM: Words = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "model": {
            "type": "string",
            "description": "A model of this server. Default: the server's default model.",
        },
        "response_format": {
            "type": "string",
            "enum": ["json", "text", "srt", "verbose_json", "vtt", "diarized_json"],
        },
        "timestamp_granularities[]": {
            "type": "array",
            "items": {"type": "string", "enum": ["word", "segment"]},
        },
        "language": {
            "type": "string",
            "description": "The language spoken, such as `en`. Default: detect it.",
        },
        "prompt": {
            "type": "string",
            "description": "Preceding text, for attention decoders (Whisper); for other models words "
            "and phrases to favour, separated by commas.",
        },
    },
}

TRANSCRIBE = describe(
    "Transcribe (compatible with OpenAI's API)",
    {
        200: {
            "description": "The transcript in the format asked for.",
            "content": {
                "application/json": {
                    "schema": {"type": "object", "properties": {"text": {"type": "string"}}},
                    "example": {"text": "keep the light"},
                },
                "text/plain": {"schema": {"type": "string"}, "example": "keep the light\n"},
                "application/x-subrip": {"schema": {"type": "string"}, "example": jobs.SRT},
                "text/vtt": {"schema": {"type": "string"}, "example": jobs.VTT},
                "text/event-stream": {
                    "schema": {"type": "string", "description": "With `stream`: that API's events."},
                    "example": jobs.TRANSCRIBED_EVENTS,
                },
            },
        }
    },
    problems(
        "malformed",
        "too_slow",
        "too_large",
        "unsupported_media_type",
        "unknown_model",
        "no_worker",
        "too_long",
        "disk_full",
    ),
    response_class=Response,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": _FORM,
                    "example": {"file": "(the recording)", "model": "whisper-1", "response_format": "json"},
                }
            },
        }
    },
)

TRANSLATE: Words = TRANSCRIBE | {"summary": "Translate into English (compatible with OpenAI's API)"}
