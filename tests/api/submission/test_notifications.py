"""Notifications of object stores, in the envelopes that clouds put them in."""

import json
from typing import Any

import pytest

from api.submission.notifications import MOST_OBJECTS, Subscription, places_below, read_notification
from spool.errors import InvalidRequest

TOPIC = "arn:aws:sns:eu-central-1:123456789012:incoming"


def s3(*keys: str, event: str = "ObjectCreated:Put") -> dict[str, Any]:
    """As Amazon's S3 writes it: keys are escaped."""
    return {
        "Records": [
            {
                "eventVersion": "2.1",
                "eventSource": "aws:s3",
                "eventName": event,
                "s3": {"bucket": {"name": "archive"}, "object": {"key": key, "size": 44}},
            }
            for key in keys
        ]
    }


def sns(message: object) -> dict[str, Any]:
    """As SNS writes it without raw message delivery."""
    return {
        "Type": "Notification",
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": TOPIC,
        "Subject": "Amazon S3 Notification",
        "Message": json.dumps(message),
        "SignatureVersion": "1",
        "SigningCertURL": "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService.pem",
    }


def of_lambda(*bodies: object) -> dict[str, Any]:
    return {"Records": [{"eventSource": "aws:sqs", "body": json.dumps(body)} for body in bodies]}


def of_sqs(*bodies: object) -> dict[str, Any]:
    """What `aws sqs receive-message` prints."""
    return {"Messages": [{"MessageId": "1", "Body": json.dumps(body)} for body in bodies]}


EVENTBRIDGE = {
    "version": "0",
    "detail-type": "Object Created",
    "source": "aws.s3",
    "detail": {"bucket": {"name": "archive"}, "object": {"key": "in/a+b.wav", "size": 44}},
}


@pytest.mark.parametrize(
    ("body", "created"),
    [
        (s3("in/a+b.wav", "in/%C3%A9.wav"), ["in/a b.wav", "in/é.wav"]),
        (s3("in/a.wav", event="ObjectRemoved:Delete"), []),
        (sns(s3("in/a+b.wav")), ["in/a b.wav"]),
        (of_lambda(s3("a.wav"), sns(s3("b.wav"))), ["a.wav", "b.wav"]),
        (of_sqs(s3("a.wav"), EVENTBRIDGE), ["a.wav", "in/a+b.wav"]),
        (of_lambda(s3("a.wav"))["Records"], ["a.wav"]),
        (EVENTBRIDGE, ["in/a+b.wav"]),
        (EVENTBRIDGE | {"detail-type": "Object Deleted"}, []),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "archive"}, []),
        (sns({"Service": "Amazon S3", "Event": "s3:TestEvent"}), []),
        (sns(s3("a.wav")) | {"Type": "UnsubscribeConfirmation", "Token": "t"}, []),
        ({"Records": []}, []),
    ],
)
def test_every_envelope_is_opened(body: object, created: list[str]) -> None:
    notification = read_notification(body)
    assert notification.created == tuple(f"s3://archive/{key}" for key in created)
    assert notification.subscriptions == ()


def test_a_subscription_is_reported_with_its_token_and_without_its_address() -> None:
    body = {
        "Type": "SubscriptionConfirmation",
        "TopicArn": TOPIC,
        "Token": "2336412f37",
        "SubscribeURL": "http://169.254.169.254/latest/meta-data",
    }
    assert read_notification(body).subscriptions == (Subscription(TOPIC, "2336412f37"),)
    assert read_notification(body).created == ()


def nested(layers: int) -> object:
    body: object = s3("a.wav")
    for _ in range(layers):
        body = {"body": body}
    return body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"hello": 1}, "body: this is no notification"),
        ([1], r"body\[0\]: an object is expected"),
        ({"Records": [{}]}, r"body.Records\[0\]: this is no notification"),
        ({"Records": [{"s3": {"bucket": {}}}]}, r"body.Records\[0\].s3.bucket.name: a text"),
        (sns("x") | {"Message": "{"}, "body.Message: this is not JSON"),
        (s3("a%00.wav"), "s3.object.key: a text"),
        (s3("a\ud800.wav"), "s3.object.key: a text"),
        (s3("a" * 5000), "s3.object.key: a text"),
        (nested(9), "nested more than 4 deep"),
        (s3(*map(str, range(MOST_OBJECTS + 1))), f"at most {MOST_OBJECTS} objects"),
        ({"Type": "SubscriptionConfirmation", "TopicArn": TOPIC}, "body.Token: a text"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_place(body: object, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read_notification(body)


def test_only_what_lies_below_an_address_is_its_own() -> None:
    created = [
        "s3://archive/in/a.wav",
        "s3://archive/in/",
        "s3://archive/inside/b.wav",
        "s3://other/in/c.wav",
    ]
    assert places_below("s3://archive/in/", created) == ["a.wav"]
