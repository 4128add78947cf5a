"""The OpenAPI texts of webhooks and event streams."""

from fastapi.responses import StreamingResponse

from api.openapi.jobs import Answers, Words, answer, describe, no_content, problems
from spool.schemas.events import EVENTS
from spool.schemas.examples import webhooks as examples
from spool.schemas.webhooks import (
    DeliveryOut,
    DeliveryPage,
    WebhookList,
    WebhookOut,
    WebhookRequest,
    WebhookSecret,
)

_BODY: Words = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": WebhookRequest.model_json_schema(), "example": examples.REQUEST}
        },
    }
}

CREATE = describe(
    "Create a webhook",
    answer(201, "The webhook with its secret.", WebhookSecret, examples.MADE),
    problems("malformed", "unsupported_media_type", "too_slow", "too_large", "not_found", "conflict"),
    status_code=201,
    response_model=WebhookSecret,
    openapi_extra=_BODY,
)
CREATE["responses"][201]["headers"] = {
    "Location": {"description": "The webhook's path.", "schema": {"type": "string"}}
}

LIST = describe("List webhooks", answer(200, "All webhooks.", WebhookList, examples.LIST))

ONE = describe(
    "Show a webhook", answer(200, "The webhook.", WebhookOut, examples.WEBHOOK), problems("not_found")
)

REMOVE = describe(
    "Remove a webhook",
    no_content("The webhook was removed."),
    problems("not_found"),
    status_code=204,
)

ROTATE = describe(
    "Rotate a webhook's secret",
    answer(200, "The webhook with its new secret.", WebhookSecret, examples.ROTATED),
    problems("not_found"),
)

ENABLE = describe(
    "Enable a webhook again",
    answer(200, "The webhook.", WebhookOut, examples.WEBHOOK),
    problems("not_found"),
)

_SENT: Answers = answer(202, "The delivery, to be sent next.", DeliveryOut, examples.DELIVERY)

TEST = describe("Test a webhook", _SENT, problems("not_found", "conflict"), status_code=202)

DELIVERIES = describe(
    "List a webhook's deliveries",
    answer(200, "A page of deliveries, newest first.", DeliveryPage, examples.DELIVERIES),
    problems("not_found"),
)

REPLAY = describe("Send a delivery again", _SENT, problems("not_found", "conflict"), status_code=202)


def add_event_schemas(page: Words) -> None:
    """Add the schemas of events, which no route's model references."""
    for model in EVENTS:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        page["components"]["schemas"] |= schema.pop("$defs", {}) | {model.__name__: schema}


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
    kinds = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in EVENTS]
    schema = {
        "type": "string",
        "description": "Server-sent events. Each `data` is JSON as below; that of `end` is {}.",
        "contentMediaType": "text/event-stream",
        "contentSchema": {"oneOf": kinds},
    }
    stream = {"text/event-stream": {"schema": schema, "example": _STREAM}}
    return {
        "summary": summary,
        "response_class": StreamingResponse,
        "responses": {
            200: {"description": "Events as they happen, until the end.", "content": stream},
            204: {"description": "The job or batch has ended, and there are no later events."},
            **problems("not_found", "too_many_streams"),
        },
    }


OF_JOB = _words("Follow a job")
OF_BATCH = _words("Follow a batch")
