"""The routes of jobs: submit, list, look at, cancel, retry.

A submission commits its row and its outbox line, then wakes the sweeper, which sends it; that the broker may
be away is no concern of the request. Knows requests and the store; what a source may be is in `sources`, how
a form is read in `uploads`.
"""

from datetime import UTC, datetime

from fastapi import Response
from pydantic import BaseModel

from spool.errors import InvalidRequest


def to_utc(moment: datetime | None) -> datetime | None:
    """The moment in UTC; one without a zone is meant so."""
    if moment is None or moment.tzinfo is None:
        return moment and moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidRequest("The time lies outside the calendar.") from None


def json_response(answer: BaseModel) -> Response:
    """An answer as it is, at once: FastAPI would send it to a thread to be looked at again."""
    return Response(answer.model_dump_json(), media_type="application/json")
