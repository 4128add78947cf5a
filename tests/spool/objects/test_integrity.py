"""A changed byte is noticed wherever it is read, and never given out."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.errors import ObjectDamaged
from spool.objects import HASH_BLOCK, FolderStore, hash_file, read_range, read_verified, verify_blocks

KEY = "jobs/job_01/source"
DATA = b"".join(hashlib.sha256(number.to_bytes(4)).digest() for number in range(5 * HASH_BLOCK // 64 + 7))
HASHES = b"".join(
    hashlib.sha256(DATA[at : at + HASH_BLOCK]).digest() for at in range(0, len(DATA), HASH_BLOCK)
)


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    store = FolderStore(tmp_path / "objects")
    store.put_bytes(KEY, DATA)
    return store


def flip(store: FolderStore, at: int, key: str = KEY) -> None:
    path = store.root / key
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_the_hashes_of_a_file_are_those_of_its_blocks(store: FolderStore, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    assert hash_file(tmp_path / "a") == (hashlib.sha256(DATA).hexdigest(), HASHES)
    (tmp_path / "a").write_bytes(b"")
    assert hash_file(tmp_path / "a") == (hashlib.sha256(b"").hexdigest(), b"")


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (0, len(DATA)),
        (0, 1),
        (HASH_BLOCK - 1, HASH_BLOCK + 1),
        (HASH_BLOCK, 2 * HASH_BLOCK),
        (len(DATA) - 1, len(DATA)),
    ],
)
def test_a_part_is_exactly_what_was_asked_for(store: FolderStore, start: int, end: int) -> None:
    pieces = list(read_range(store, KEY, None, HASHES, start, end))
    assert b"".join(pieces) == DATA[start:end]
    assert max(map(len, pieces), default=0) <= 64 << 10, "a slow reader holds up no more"


@pytest.mark.parametrize("at", [0, HASH_BLOCK - 1, HASH_BLOCK, 2 * HASH_BLOCK + 5, len(DATA) - 1])
def test_a_flipped_byte_is_in_no_part(store: FolderStore, at: int) -> None:
    flip(store, at)
    received: list[bytes] = []
    with pytest.raises(ObjectDamaged, match=KEY):
        received.extend(read_range(store, KEY, None, HASHES, 0, len(DATA)))
    assert b"".join(received) == DATA[: at // HASH_BLOCK * HASH_BLOCK]
    with pytest.raises(ObjectDamaged):
        list(read_range(store, KEY, None, HASHES, at, at + 1))


@pytest.mark.parametrize("length", [0, 1, HASH_BLOCK, len(DATA) - 1, len(DATA) + 1])
def test_a_shorter_or_longer_object_is_damaged(store: FolderStore, length: int) -> None:
    store.put_bytes(KEY, (DATA + b"x")[:length])
    with pytest.raises(ObjectDamaged):
        list(read_range(store, KEY, None, HASHES, 0, len(DATA)))


@given(
    cuts=st.lists(st.integers(0, len(DATA)), max_size=8), flipped=st.none() | st.integers(0, len(DATA) - 1)
)
def test_however_the_bytes_arrive(cuts: list[int], flipped: int | None) -> None:
    data = bytearray(DATA)
    if flipped is not None:
        data[flipped] ^= 0x80
    ends = [*sorted(cuts), len(data)]

    def blocks() -> Iterator[bytes]:
        start = 0
        for end in ends:
            yield bytes(data[start:end])
            start = end

    if flipped is None:
        assert b"".join(verify_blocks(blocks(), HASHES, KEY)) == DATA
    else:
        with pytest.raises(ObjectDamaged):
            list(verify_blocks(blocks(), HASHES, KEY))


@pytest.mark.parametrize("size", [1, 100, 5 << 20])
def test_an_object_that_is_read_as_one_is_verified_first(store: FolderStore, size: int) -> None:
    record = (DATA * 2)[:size]
    sha256 = store.put_bytes("record", record).sha256 or ""
    assert read_verified(store, "record", sha256) == record
    flip(store, size - 1, "record")
    with pytest.raises(ObjectDamaged, match="record is not what was written"):
        read_verified(store, "record", sha256)
