"""What the OpenAPI page says of the routes of webhooks. Words only, as in `described`."""

from api.described import Answers, Words, answer, problems
from spool.wire import webhook_examples as examples
from spool.wire.webhooks import (
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

CREATE: Words = {
    "summary": "Have events sent",
    "status_code": 201,
    "response_model": WebhookSecret,
    "openapi_extra": _BODY,
    "responses": {
        **answer(201, "The endpoint with its secret.", WebhookSecret, examples.MADE),
        **problems("malformed", "unsupported_media_type", "too_slow", "too_large", "not_found", "conflict"),
    },
}
CREATE["responses"][201]["headers"] = {
    "Location": {"description": "The endpoint's path.", "schema": {"type": "string"}}
}

LIST: Words = {
    "summary": "List webhooks",
    "responses": answer(200, "Every endpoint.", WebhookList, examples.LIST),
}

ONE: Words = {
    "summary": "Look at a webhook",
    "responses": answer(200, "The endpoint.", WebhookOut, examples.WEBHOOK) | problems("not_found"),
}

REMOVE: Words = {
    "summary": "Remove a webhook",
    "status_code": 204,
    "responses": {204: {"description": "It is removed."}, **problems("not_found")},
}

ROTATE: Words = {
    "summary": "Rotate a webhook's secret",
    "responses": answer(200, "The endpoint with its new secret.", WebhookSecret, examples.ROTATED)
    | problems("not_found"),
}

ENABLE: Words = {
    "summary": "Enable a webhook again",
    "responses": answer(200, "The endpoint.", WebhookOut, examples.WEBHOOK) | problems("not_found"),
}

_SENT: Answers = answer(202, "The delivery, about to be tried.", DeliveryOut, examples.DELIVERY)

TEST: Words = {
    "summary": "Test a webhook",
    "status_code": 202,
    "responses": _SENT | problems("not_found", "conflict"),
}

DELIVERIES: Words = {
    "summary": "List a webhook's deliveries",
    "responses": answer(200, "A page of deliveries, newest first.", DeliveryPage, examples.DELIVERIES)
    | problems("not_found"),
}

REPLAY: Words = {
    "summary": "Send a delivery again",
    "status_code": 202,
    "responses": _SENT | problems("not_found", "conflict"),
}
