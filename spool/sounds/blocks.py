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
from collections.abc import Sequence

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
_UNHEARD = round(7.0 / STEP)
"""What a class that was not kept counts as, in steps of the table."""


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
    try:
        version, count, checksum = HEADER.unpack_from(block)
        if version != VERSION:
            raise DamagedSounds(f"version {version} is unknown")
        if zlib.crc32(memoryview(block)[HEADER.size :]) != checksum:
            raise DamagedSounds("its checksum does not match")
        body = np.frombuffer(zlib.decompress(block[HEADER.size :]), np.uint8)
        marks = -(-count // 8)
        busy = np.flatnonzero(np.unpackbits(body[:marks], count=count))
        classes = body[marks:][: CLASSES * len(busy)].reshape(CLASSES, -1).T
        halves = body[marks + CLASSES * len(busy) :].reshape(CLASSES // 2, -1).T
        table = np.full((count, COLUMNS), _UNHEARD, np.uint8)
        steps = np.empty((len(busy), CLASSES), np.uint8)
        steps[:, 0::2], steps[:, 1::2] = halves >> 4, halves & 15
        table[:, SILENCE] = 0
        table[busy, SILENCE] = _UNHEARD
        table[busy[:, None], classes] = np.where(steps < _BEYOND, steps * (STEP_NATS / STEP), _UNHEARD)
    except (struct.error, zlib.error, ValueError, IndexError) as cause:
        raise cause if isinstance(cause, DamagedSounds) else DamagedSounds(str(cause)) from cause
    best = table[:, : SILENCE + 1].argmin(axis=1)
    table[:, END] = table[:, SILENCE]
    table[:, HEARD] = (best != SILENCE) & (best != np.append(SILENCE, best[:-1]))
    table[:, BEST] = 0
    return table


def unpack_blocks(blocks: Sequence[bytes]) -> PhoneFrames:
    """Blocks that follow each other. Raises DamagedSounds."""
    tables = [np.zeros((0, COLUMNS), np.uint8), *map(unpack_block, blocks)]
    return PhoneFrames(np.concatenate(tables))
