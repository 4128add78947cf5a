"""Answers with sound, whole or in part. Range requests follow RFC 9110, section 14."""

import re
from collections.abc import Mapping

from fastapi import Response
from fastapi.responses import StreamingResponse

from api.problems import Problem
from api.recordings.source import Readable

_ONE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The first byte and the one after the last; None for the whole, also if the header is invalid or asks
    for several ranges. Raises ValueError for bytes that do not exist."""
    match = _ONE.fullmatch(header.replace(" ", "")) if header else None
    if match is None or match[1] == match[2] == "":
        return None
    if not match[1]:
        start, end = max(size - int(match[2]), 0), size
    else:
        start, end = int(match[1]), min(int(match[2]) + 1 if match[2] else size, size)
        if match[2] and int(match[2]) < start:
            return None
    if start >= end:
        raise ValueError("The recording has no such bytes.")
    return start, end


def send(
    sound: Readable, wanted: str | None, media_type: str, more: Mapping[str, str] | None = None
) -> Response:
    """Answer with the part of `sound` that the header `Range` asks for. Raises `Problem` for bytes that do
    not exist."""
    try:
        part = parse_range(wanted, sound.size)
    except ValueError as error:
        raise Problem(416, "no_such_range", str(error), {"Content-Range": f"bytes */{sound.size}"}) from None
    start, end = part or (0, sound.size)
    headers = {"Accept-Ranges": "bytes", "Content-Length": str(end - start), "Content-Disposition": "inline"}
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{sound.size}"
    body = sound.part(start, end) if sound.size else iter(())
    return StreamingResponse(body, 206 if part else 200, {**headers, **(more or {})}, media_type)
