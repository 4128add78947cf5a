"""Reads which objects were created from the notifications of S3 and MinIO, also inside envelopes of SNS, SQS
and EventBridge, which may be nested.

Nothing that a notification names is fetched. Its sender has presented a key, and its only effect is that
objects below watched addresses are looked at.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from spool.errors import InvalidRequest

MOST_OBJECTS = 1000
_MOST_LAYERS = 4
_LONGEST = 4096
_CREATED = "ObjectCreated"
_EVENTBRIDGE = "Object Created"


@dataclass(frozen=True, slots=True)
class Subscription:
    """An SNS topic that asks for confirmation with this token."""

    topic: str
    token: str


@dataclass(frozen=True, slots=True)
class Notification:
    """`s3://bucket/key` of each object that was created, and subscriptions to be confirmed."""

    created: tuple[str, ...]
    subscriptions: tuple[Subscription, ...]


def read_notification(body: object) -> Notification:
    """Open a notification. Raises InvalidRequest if it has no known form or names more than `MOST_OBJECTS`
    objects."""
    created: list[str] = []
    subscriptions: list[Subscription] = []
    for each in _open(body, "body", 0):
        if isinstance(each, Subscription):
            subscriptions.append(each)
        else:
            created.append(each)
        if len(created) > MOST_OBJECTS:
            raise InvalidRequest(f"A notification names at most {MOST_OBJECTS} objects.")
    return Notification(tuple(created), tuple(subscriptions))


def _open(body: object, where: str, layer: int) -> Iterator[str | Subscription]:
    if layer > _MOST_LAYERS:
        raise InvalidRequest(f"{where}: envelopes are nested more than {_MOST_LAYERS} deep.")
    if isinstance(body, list):
        for at, each in enumerate(body):
            yield from _open(each, f"{where}[{at}]", layer + 1)
    elif not isinstance(body, dict):
        raise InvalidRequest(f"{where}: an object is expected.")
    elif "Type" in body and "TopicArn" in body:
        yield from _open_sns(body, where, layer)
    elif body.get("source") == "aws.s3" and "detail" in body:
        yield from _open_eventbridge(body, where)
    elif "body" in body or "Body" in body:
        name = "body" if "body" in body else "Body"  # as Lambda, Pipes and SQS itself write it
        yield from _open(_parse(body[name], f"{where}.{name}"), f"{where}.{name}", layer + 1)
    elif isinstance(messages := body.get("Messages", body.get("Records")), list):
        name = "Messages" if "Messages" in body else "Records"
        for at, each in enumerate(messages):
            place = f"{where}.{name}[{at}]"
            if isinstance(each, dict) and "s3" in each:
                yield from _open_s3(each, place)
            else:
                yield from _open(each, place, layer + 1)
    elif body.get("Event") != "s3:TestEvent":  # which S3 sends when notifications are set up
        raise InvalidRequest(
            f"{where}: this is no notification of S3, nor one in an envelope of SNS, SQS or EventBridge."
        )


def _open_sns(body: Mapping[str, Any], where: str, layer: int) -> Iterator[str | Subscription]:
    if body["Type"] == "SubscriptionConfirmation":
        yield Subscription(_text(body, where, "TopicArn"), _text(body, where, "Token"))
    elif body["Type"] == "Notification":
        yield from _open(_parse(body.get("Message"), f"{where}.Message"), f"{where}.Message", layer + 1)


def _open_eventbridge(body: Mapping[str, Any], where: str) -> Iterator[str]:
    if body.get("detail-type") == _EVENTBRIDGE:
        bucket = _text(body, where, "detail", "bucket", "name")
        yield f"s3://{bucket}/{_text(body, where, 'detail', 'object', 'key')}"


def _open_s3(record: Mapping[str, Any], where: str) -> Iterator[str]:
    event = record.get("eventName") or _CREATED
    bucket = _text(record, where, "s3", "bucket", "name")
    key = unquote_plus(_text(record, where, "s3", "object", "key"))
    if _CREATED in str(event):
        yield f"s3://{bucket}/{key}"


def _parse(text: object, where: str) -> object:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"{where}: this is not JSON.") from None


def _text(body: Mapping[str, Any], where: str, *names: str) -> str:
    value: object = body
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or not _may_be_stored(value):
        raise InvalidRequest(f"{where}.{'.'.join(names)}: a text of up to {_LONGEST} characters is expected.")
    return value


def _may_be_stored(text: str) -> bool:
    """Whether a database can store the text: no zero byte, even escaped, and no unpaired surrogate."""
    return "\0" not in unquote_plus(text) and not any("\ud800" <= char <= "\udfff" for char in text)


def places_below(address: str, created: Sequence[str]) -> list[str]:
    """The paths of the given objects that are below an `s3://` address."""
    below = f"{address.rstrip('/')}/"
    return [uri.removeprefix(below) for uri in created if uri.startswith(below) and uri != below]
