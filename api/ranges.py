"""Part of a recording over HTTP: which bytes were asked for (RFC 9110, section 14), and how they are sent."""

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

BLOCK = 256 * 1024
_ONE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def asked_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last; None for all of it, which several ranges at once, or what is no
    range, also get. Raises ValueError for bytes that are not there."""
    found = _ONE.fullmatch(header.replace(" ", "")) if header else None
    if found is None or found[1] == found[2] == "":
        return None
    if not found[1]:
        start, end = max(size - int(found[2]), 0), size
    else:
        start, end = int(found[1]), min(int(found[2]) + 1 if found[2] else size, size)
        if found[2] and int(found[2]) < start:
            return None
    if start >= end:
        raise ValueError("The recording has no such bytes.")
    return start, end


def blocks_of(opened: Callable[[], BinaryIO], length: int) -> Iterator[bytes]:
    """The first `length` bytes of what is opened when they are asked for: not for a client that has left."""
    with opened() as stream:
        while length and (block := stream.read(min(BLOCK, length))):
            length -= len(block)
            yield block
