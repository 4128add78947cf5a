"""The schemas of webhooks and their deliveries."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from spool.domain.events import BATCH_DONE, EVENT_TYPES, JOB_ENDS
from spool.domain.manifest import Printable
from spool.schemas.common import AnswerModel, Project, RequestModel

DeliveryState = Literal["pending", "delivered", "failed"]
DEFAULT_EVENTS = (*sorted(JOB_ENDS), BATCH_DONE)


def _check_event(name: str) -> str:
    if name not in EVENT_TYPES:
        raise ValueError(f"is not an event; choose from {', '.join(EVENT_TYPES)}")
    return name


EventType = Annotated[
    str, AfterValidator(_check_event), Field(max_length=32, json_schema_extra={"enum": list(EVENT_TYPES)})
]


class WebhookRequest(RequestModel):
    """A webhook to be created."""

    url: Annotated[Printable, Field(min_length=1, max_length=2000)] = Field(
        description="An https:// address; http:// only to hosts that the server's settings name."
    )
    project: Project | None = Field(
        None, description="The project. Default: the key's project, or `default`."
    )
    events: Annotated[list[EventType], Field(min_length=1, max_length=len(EVENT_TYPES))] = Field(
        default_factory=lambda: list(DEFAULT_EVENTS),
        description="Default: the ends of jobs and batches.",
    )
    batch: Annotated[str, Field(max_length=40)] | None = Field(
        None, description="Send only the events of this batch and its jobs."
    )
    description: Annotated[Printable, Field(max_length=200)] = ""


class WebhookOut(AnswerModel):
    """A webhook and the state of its deliveries."""

    id: str
    project: str
    url: str
    events: list[str] = Field(validation_alias="types")
    batch: str | None = Field(validation_alias="batch_id")
    description: str
    state: Literal["enabled", "failing", "disabled"]
    reason: str | None = Field(validation_alias="disabled_reason", description="Why it was disabled.")
    created_at: datetime
    succeeded_at: datetime | None = Field(description="When a delivery last succeeded.")
    failing_since: datetime | None = Field(description="The first failure since then.")
    delivered: int = Field(description="Deliveries that succeeded.")
    given_up: int = Field(description="Deliveries that failed for good.")


class WebhookSecret(WebhookOut):
    """A webhook with its secret, which is shown only once."""

    secret: str
    old_secret_until: datetime | None = Field(description="Until then the previous secret also signs.")


class TryOut(AnswerModel):
    """One attempt at a delivery."""

    at: datetime
    milliseconds: int | None = None
    status: int | None = Field(None, description="The receiver's HTTP status; null without an answer.")
    error: str | None = None
    replayed: bool = Field(False, description="Not an attempt: the delivery was replayed here.")


class DeliveryOut(AnswerModel):
    """One delivery to one webhook."""

    id: str = Field(description="The header `webhook-id`, the same in every attempt.")
    type: str
    state: DeliveryState
    created_at: datetime
    next_try_at: datetime | None
    ended_at: datetime | None
    tries: list[TryOut] = Field(validation_alias="log")
    body: dict[str, Any] = Field(validation_alias="message", description="The JSON that is sent.")
