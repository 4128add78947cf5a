"""The answer that streams a transcript's record closes its file, whatever the client does."""

import asyncio
import io

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from api.routes.transcripts import FileStream


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
def test_the_file_is_closed_although_the_client_has_gone_before_the_answer(spec_version: str) -> None:
    file = io.BytesIO(b"words")
    answer = FileStream(file, {}, "application/json")

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        await asyncio.sleep(0.01)
        raise OSError("gone")

    async def respond() -> None:
        try:
            await answer({"type": "http", "asgi": {"spec_version": spec_version}}, receive, send)
        except ClientDisconnect:
            assert spec_version == "2.4"

    asyncio.run(respond())
    assert file.closed
