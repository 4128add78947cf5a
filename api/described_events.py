"""What the OpenAPI page says of the streams of events."""

from fastapi.responses import StreamingResponse

from api.described import Words, problems

_STREAM = """retry: 2000

id: 4711
event: job.progress
data: {"state":"running","done_seconds":540.0,"audio_seconds":1260.0}

id: 4790
event: job.done
data: {"project":"oral-history","job":"job_01JD5T9Q4X8K2M6N0P3R7S1V5W","batch":null,"custom_id":null,\
"at":"2026-11-16T15:02:31+00:00","state":"done","name":"Reel 42","attempt":1,"audio_seconds":1260.0,\
"words":2864,"coverage":1.0,"reused_from":null}

event: end
data: {}

"""


def _words(summary: str) -> Words:
    stream = {"text/event-stream": {"schema": {"type": "string"}, "example": _STREAM}}
    return {
        "summary": summary,
        "response_class": StreamingResponse,
        "responses": {
            200: {"description": "Events as they happen, until the end.", "content": stream},
            204: {"description": "It has ended, and everything after that event was told."},
            **problems("not_found", "too_many_streams"),
        },
    }


OF_JOB = _words("Follow a job")
OF_BATCH = _words("Follow a batch")
