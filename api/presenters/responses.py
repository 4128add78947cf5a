"""What the answers of several routes share: times in UTC, and models written as JSON."""

from datetime import UTC, datetime

from fastapi import Response
from pydantic import BaseModel

from spool.errors import InvalidRequest


def to_utc(moment: datetime | None) -> datetime | None:
    """The moment in UTC; one without a zone is taken as UTC."""
    if moment is None or moment.tzinfo is None:
        return moment and moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidRequest("The time lies outside the calendar.") from None


def json_response(answer: BaseModel) -> Response:
    """The answer as JSON, without FastAPI's second validation in a thread."""
    return Response(answer.model_dump_json(), media_type="application/json")
