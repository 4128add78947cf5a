"""Answers written as JSON by the handler itself."""

from fastapi import Response
from pydantic import BaseModel


def json_response(answer: BaseModel) -> Response:
    """The answer as JSON, without FastAPI's second validation in a thread."""
    return Response(answer.model_dump_json(), media_type="application/json")
