"""What a phoneme model heard, packed small enough to keep: four classes a frame, 20 s a block.

A block is `FRAMES` frames (the last one of a channel may have fewer), compressed with zlib behind a header of
`HEADER`: version, number of frames, CRC-32 of what follows. Uncompressed it has, in this order:

- a bit a frame, first frame in the highest bit: whether it is busy; all others are silence for sure;
- of each busy frame its four likeliest classes, most likely first, four bytes: a phone's number in `PHONES`,
  or `SILENCE`, which a word's end counts as;
- of each busy frame how much less likely they are than the best symbol, in steps of `STEP_NATS`, two bytes of
  four bits each; 15 stands for all that is less likely.
"""

import struct
import zlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spool.sounds.phones import BEST, COLUMNS, END, HEARD, SILENCE, STEP, PhoneFrames

FRAMES = 1000
CLASSES = 4
STEP_NATS = 0.4
VERSION = 1
HEADER = struct.Struct("<BHI")
_SURE_STEPS = round(4.0 / STEP)
"""Where silence is the best class and every phone is this much less likely, a frame is not busy."""
_BEYOND = 15
_KNOWN = bytes(range(SILENCE + 1))
_UNHEARD = round(7.0 / STEP)
"""What a class that was not kept counts as, in steps of the table."""


_STEPS = np.array([*(round(step * STEP_NATS / STEP) for step in range(_BEYOND)), _UNHEARD], np.uint8)


class OpenBlock(NamedTuple):
    """A block without its header, uncompressed: how many frames, how many of them busy, and its bytes."""

    frames: int
    busy: int
    body: bytes


class DamagedSounds(ValueError):
    """A block that cannot be read back; says why."""


def pack_blocks(frames: PhoneFrames) -> list[bytes]:
    """The blocks of a channel, from its beginning."""
    return [_pack(frames.table[at : at + FRAMES]) for at in range(0, len(frames.table), FRAMES)]


def _pack(table: NDArray[np.uint8]) -> bytes:
    costs = table[:, : SILENCE + 1].copy()
    costs[:, SILENCE] = np.minimum(table[:, SILENCE], table[:, END])
    busy = (costs[:, :SILENCE].min(axis=1) < _SURE_STEPS) | (costs[:, SILENCE] > 0)
    kept = costs[busy]
    classes = np.argsort(kept, axis=1, kind="stable")[:, :CLASSES].astype(np.uint8)
    ratios = np.take_along_axis(kept, classes.astype(np.intp), axis=1) * (STEP / STEP_NATS)
    steps = np.minimum(np.rint(ratios), _BEYOND).astype(np.uint8)
    halves = steps[:, 0::2] << 4 | steps[:, 1::2]
    body = zlib.compress(np.packbits(busy).tobytes() + classes.T.tobytes() + halves.T.tobytes(), 9)
    return HEADER.pack(VERSION, len(table), zlib.crc32(body)) + body


def unpack_block(block: bytes) -> NDArray[np.uint8]:
    """The frames' table, uint8 [T, COLUMNS], as far as it was kept. Raises DamagedSounds."""
    opened = _open(block)
    table = np.full((opened.frames, COLUMNS), _UNHEARD, np.uint8)
    frames = np.arange(opened.frames)
    costs = KeptFrames([opened]).costs(np.zeros_like(frames), frames, range(SILENCE + 1))
    table[:, : SILENCE + 1] = np.stack(list(costs.values()), axis=1)
    best = table[:, : SILENCE + 1].argmin(axis=1)
    table[:, END] = table[:, SILENCE]
    table[:, HEARD] = (best != SILENCE) & (best != np.append(SILENCE, best[:-1]))
    table[:, BEST] = 0
    return table


class KeptFrames:
    """Many blocks opened."""

    def __init__(self, blocks: Sequence[OpenBlock]) -> None:
        """All is silent behind a block's end."""
        bodies = [each.body for each in blocks]
        self._bytes = np.frombuffer(b"".join(bodies), np.uint8)
        marked = np.array([_mark_bytes(each.frames) for each in blocks], np.int64)
        begins = np.cumsum([0, *map(len, bodies)], dtype=np.int64)[:-1]
        # One more, which is silent.
        marks = np.zeros((len(blocks) + 1, FRAMES // 8), np.uint8)
        places = np.arange(FRAMES // 8)
        own = places < marked[:, None]
        marks[:-1][own] = self._bytes[(begins[:, None] + places)[own]]
        self._marks = marks.ravel()
        counts = np.bitwise_count(self._marks)
        self._before = np.cumsum(counts, dtype=np.int64) - counts
        # Of each block: its busy frames, and where the first class of its first one would be if its number
        # were that among all.
        self._busy = np.array([each.busy for each in blocks], np.int64)
        self._first = begins + marked - (np.cumsum(self._busy) - self._busy)

    def costs(
        self, blocks: NDArray[np.int64], frames: NDArray[np.int64], classes: Collection[int]
    ) -> dict[int, NDArray[np.uint8]]:
        """How much less likely than the best symbol each of these classes is in these frames of blocks (-1:
        silence), in steps of `STEP`."""
        # -1 is the last one, here as everywhere in numpy.
        where = (blocks * FRAMES + frames).ravel()
        busy, kept = self._find(where)
        costs = np.full((len(classes), len(where)), _UNHEARD, np.uint8)
        begins = np.full(SILENCE + 1, -1, np.int64)
        begins[list(classes)] = np.arange(len(classes)) * len(where)
        quiet = np.ones(len(where), np.bool_)
        quiet[busy] = False
        flat = costs.ravel()
        if SILENCE in classes:
            flat[begins[SILENCE] + np.flatnonzero(quiet)] = 0
        block = blocks.ravel().take(busy)
        stride = self._busy.take(block)
        place = self._first.take(block) + kept
        halves_at = place + CLASSES * stride
        for rank in range(CLASSES):
            begin = begins.take(self._bytes.take(place + rank * stride))
            wanted = np.flatnonzero(begin >= 0)
            halves = self._bytes.take((halves_at + rank // 2 * stride).take(wanted))
            steps = halves >> 4 if rank % 2 == 0 else halves & 15
            flat[begin.take(wanted) + busy.take(wanted)] = _STEPS.take(steps)
        return dict(zip(classes, costs.reshape(len(classes), *blocks.shape), strict=True))

    def _find(self, where: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Which of these frames are busy, and the number of each among all busy ones."""
        marks, later = self._marks.take(where >> 3), 7 - (where & 7)
        marks >>= later.astype(np.uint8)
        busy = np.flatnonzero(marks & 1)
        before = np.bitwise_count(marks.take(busy) >> 1)
        return busy, self._before.take(where.take(busy) >> 3) + before


def _open(block: bytes) -> OpenBlock:
    """Its parts. Raises DamagedSounds."""
    try:
        version, count, checksum = HEADER.unpack_from(block)
        if version != VERSION:
            raise DamagedSounds(f"version {version} is unknown")
        packed = block[HEADER.size :]
        if zlib.crc32(packed) != checksum:
            raise DamagedSounds("its checksum does not match")
        body = zlib.decompress(packed)
    except (struct.error, zlib.error) as cause:
        raise DamagedSounds(str(cause)) from cause
    marks = _mark_bytes(count)
    busy = int.from_bytes(body[:marks], "big").bit_count()
    if count > FRAMES or len(body) != marks + (CLASSES + CLASSES // 2) * busy:
        raise DamagedSounds("its length does not match its frames")
    if body[marks : marks + CLASSES * busy].translate(None, _KNOWN):
        raise DamagedSounds("it has a class that does not exist")
    return OpenBlock(count, busy, body)


def _mark_bytes(frames: int) -> int:
    return -(-frames // 8)


def open_blocks(blocks: Sequence[bytes]) -> list[OpenBlock | None]:
    """Each block's parts, None for a damaged one."""
    found: list[OpenBlock | None] = []
    for block in blocks:
        try:
            found.append(_open(block))
        except DamagedSounds:
            found.append(None)
    return found


def unpack_blocks(blocks: Sequence[bytes]) -> PhoneFrames:
    """Blocks that follow each other. Raises DamagedSounds."""
    tables = [np.zeros((0, COLUMNS), np.uint8), *map(unpack_block, blocks)]
    return PhoneFrames(np.concatenate(tables))
