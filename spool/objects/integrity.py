"""What is read back is what was written: hashes that SQL recorded, held against every byte that is given out.

A transcript has one hash. A recording is read in parts too, so each mebibyte of an upload has its own, and a
part is read and verified by the mebibytes that it touches. Knows stores and bytes; where hashes are kept is
`spool.store.jobs`'s business.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from spool.errors import ObjectDamaged
from spool.objects.base import ObjectStore

HASH_BLOCK = 1 << 20
"""Bytes that share a hash; recorded hashes depend on it."""
HASH_BYTES = 32
_IN_MEMORY = 1 << 20
_READ = 256 << 10
_PIECE = 64 << 10


def hash_file(path: Path, check: Callable[[], None] = lambda: None) -> tuple[str, bytes]:
    """The SHA-256 (hex) of the file, and those of its blocks, one after the other; `check` is called with
    every block and may raise to stop."""
    whole, blocks = hashlib.sha256(), []
    with path.open("rb") as file:
        while block := file.read(HASH_BLOCK):
            whole.update(block)
            blocks.append(hashlib.sha256(block).digest())
            check()
    return whole.hexdigest(), b"".join(blocks)


def open_verified(store: ObjectStore, key: str, sha256: str) -> IO[bytes]:
    """A copy of the object, in memory or in a nameless file, whose bytes have this hash; close it.

    Raises ObjectDamaged, NotFound and StorageError before any byte is given out.
    """
    copy = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - the caller closes it
    digest = hashlib.sha256()
    try:
        with store.open(key) as stream:
            while block := stream.read(_READ):
                digest.update(block)
                copy.write(block)
        if digest.hexdigest() != sha256:
            raise _damage_error(key)
    except BaseException:
        copy.close()
        raise
    copy.seek(0)
    return copy


def read_verified(store: ObjectStore, key: str, sha256: str) -> bytes:
    """All bytes of the object. Raises as `open_verified` does."""
    with store.open(key) as stream:
        content = stream.read()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _damage_error(key)
    return content


def verify_blocks(blocks: Iterable[bytes], hashes: bytes, key: str, first: int = 0) -> Iterator[bytes]:
    """The bytes of `blocks` in blocks that have their recorded hash, to the end of the object.

    `hashes`: of all blocks of the object, the `first` of which `blocks` begins with. Raises ObjectDamaged in
    place of a block that was changed, is missing or is too much.
    """
    number, held = first, bytearray()
    for block in blocks:
        held += block
        del block  # whoever takes the blocks may take them slowly
        while len(held) >= HASH_BLOCK:
            with memoryview(held) as view:
                complete = bytes(view[:HASH_BLOCK])
            del held[:HASH_BLOCK]
            yield _verify(complete, hashes, number, key)
            del complete
            number += 1
    if held:
        yield _verify(bytes(held), hashes, number, key)
        number += 1
    if number * HASH_BYTES != len(hashes):
        raise _damage_error(key)


def read_range(
    store: ObjectStore, key: str, etag: str | None, hashes: bytes, start: int, end: int
) -> Iterator[bytes]:
    """Bytes `[start, end)` of the object (`start` less than its size), verified before they are given out, in
    pieces of `_PIECE` at most: a slow reader costs the memory of one block.

    Raises ObjectDamaged, and what opening and reading raise.
    """
    first = start // HASH_BLOCK
    at = first * HASH_BLOCK
    with store.open(key, etag, start=at) as stream:
        blocks = iter(lambda: stream.read(HASH_BLOCK), b"")
        for block in verify_blocks(blocks, hashes, key, first):
            for begin in range(max(start - at, 0), min(len(block), end - at), _PIECE):
                yield block[begin : min(begin + _PIECE, end - at)]
            at += len(block)
            if at >= end:
                return


def _verify(block: bytes, hashes: bytes, number: int, key: str) -> bytes:
    recorded = hashes[number * HASH_BYTES : (number + 1) * HASH_BYTES]
    if hashlib.sha256(block).digest() != recorded:
        raise _damage_error(key)
    return block


def _damage_error(key: str) -> ObjectDamaged:
    return ObjectDamaged(
        f"The object {key} is not what was written: its hash differs from the recorded one. If that is so "
        "whenever it is read, restore it from a backup."
    )
