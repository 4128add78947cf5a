"""What goes over the wire about webhooks. Knows neither routes nor SQL."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from spool.domain.events import BATCH_DONE, EVENT_TYPES, JOB_ENDS
from spool.schemas.common import Project, with_example
from spool.schemas.examples import webhooks as examples

DEFAULT_EVENTS = (*sorted(JOB_ENDS), BATCH_DONE)


def _known(name: str) -> str:
    if name not in EVENT_TYPES:
        raise ValueError(f"there is no such event; there are {', '.join(EVENT_TYPES)}")
    return name


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


EventType = Annotated[
    str, AfterValidator(_known), Field(max_length=32, json_schema_extra={"enum": list(EVENT_TYPES)})
]
Text = Annotated[str, AfterValidator(_printable)]


class WebhookRequest(BaseModel):
    """Where to send what."""

    model_config = with_example(examples.REQUEST, strict=True)

    url: Annotated[Text, Field(min_length=1, max_length=2000)] = Field(
        description="An https:// address; plain http:// to hosts that the server's settings name alone."
    )
    project: Project | None = Field(None, description="Whose events; the key's own project, else `default`.")
    events: Annotated[list[EventType], Field(min_length=1, max_length=len(EVENT_TYPES))] = Field(
        default_factory=lambda: list(DEFAULT_EVENTS), description="Which; every end, unless given."
    )
    batch: Annotated[str, Field(max_length=40)] | None = Field(
        None, description="Of this batch and its jobs alone."
    )
    description: Annotated[Text, Field(max_length=200)] = ""


class WebhookOut(BaseModel):
    """An endpoint, and how it fares."""

    model_config = with_example(examples.WEBHOOK)

    id: str
    project: str
    url: str
    events: list[str]
    batch: str | None
    description: str
    state: Literal["enabled", "failing", "disabled"]
    reason: str | None = Field(description="Why it was disabled.")
    created_at: datetime
    succeeded_at: datetime | None = Field(description="When something last arrived.")
    failing_since: datetime | None = Field(description="The first failure since then.")
    delivered: int = Field(description="Messages that arrived.")
    given_up: int = Field(description="Messages that never did.")


class WebhookSecret(WebhookOut):
    """An endpoint with its secret, which is shown this once."""

    model_config = with_example(examples.MADE)

    secret: str
    old_secret_until: datetime | None = Field(description="Until then the secret before it signs as well.")


class WebhookList(BaseModel):
    """Endpoints, newest first."""

    model_config = with_example(examples.LIST)

    items: list[WebhookOut]


class TryOut(BaseModel):
    """One try of a delivery."""

    at: datetime
    milliseconds: int | None = None
    status: int | None = Field(None, description="What the receiver answered; null where it did not.")
    error: str | None = None
    replayed: bool = Field(False, description="No try: here somebody asked for it again.")


class DeliveryOut(BaseModel):
    """One message to one endpoint."""

    model_config = with_example(examples.DELIVERY)

    id: str = Field(description="The header `webhook-id`, the same in every try.")
    type: str
    state: Literal["pending", "delivered", "failed"]
    created_at: datetime
    next_try_at: datetime | None
    ended_at: datetime | None
    tries: list[TryOut]
    body: dict[str, Any] = Field(description="What is sent.")


class DeliveryPage(BaseModel):
    """Deliveries, newest first."""

    model_config = with_example(examples.DELIVERIES)

    items: list[DeliveryOut]
    next_cursor: str | None
