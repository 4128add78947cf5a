"""What was heard in recordings, in SQL: kept with a job's end, packed later, deleted with its transcript.

A channel's pairs are read by themselves until its project has `PACK_BYTES` of cells; then `pack_sounds` puts
them side by side in a segment of at most that many (a longer channel has one for itself), a row for each
pair, so that a search reads few and long rows. A deletion
marks the segment as stale in its commit, and `clear_stale` clears the cells soon after.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Self

import numpy as np
from sqlalchemy import Connection, bindparam, delete, false, func, insert, null, select, true, update

from spool.sounds.blocks import pack_blocks, unpack_blocks
from spool.sounds.pairs import PAIRS, Bits, make_pairs
from spool.sounds.phones import PhoneFrames
from spool.tables import sound_blocks, sound_pairs, sound_recordings, sound_segments

PACK_BYTES = 8100
"""64,800 cells: 36 hours. A row of `sound_pairs` has 44 bytes more and fits into a page of PostgreSQL."""
_ROWS = 500


@dataclass(frozen=True, slots=True)
class ChannelSounds:
    """What is kept of one channel: its blocks, and its pairs."""

    blocks: Sequence[bytes]
    pairs: Bits

    @classmethod
    def of(cls, frames: PhoneFrames) -> Self:
        """Of all that was heard."""
        return cls.read(pack_blocks(frames))

    @classmethod
    def read(cls, blocks: Sequence[bytes]) -> Self:
        """Of its blocks. Raises DamagedSounds."""
        return cls(blocks, make_pairs(unpack_blocks(blocks).table))


def write_sounds(tx: Connection, job_id: str, project: str, channels: Sequence[ChannelSounds]) -> None:
    """Keep what was heard in a job's recording, in place of what was kept before."""
    drop_sounds(tx, [job_id])
    for channel, heard in enumerate(channels):
        own = {"job_id": job_id, "channel": channel}
        rows = [{**own, "number": number, "block": block} for number, block in enumerate(heard.blocks)]
        for at in range(0, len(rows), _ROWS):
            tx.execute(insert(sound_blocks), rows[at : at + _ROWS])
        matrix = zlib.compress(heard.pairs.tobytes(), 1)
        kept = {**own, "project": project, "width": heard.pairs.shape[1], "pairs": matrix}
        tx.execute(insert(sound_recordings).values(**kept))


def copy_sounds(tx: Connection, source_id: str, job_id: str, project: str) -> None:
    """Give a job that reused another one's transcript what was heard in it. Raises DamagedSounds."""
    c = sound_blocks.c
    rows = tx.execute(
        select(c.channel, c.block).where(c.job_id == source_id).order_by(c.channel, c.number)
    ).all()
    channels = [[row.block for row in own] for _, own in groupby(rows, lambda row: row.channel)]
    write_sounds(tx, job_id, project, [ChannelSounds.read(blocks) for blocks in channels])


def drop_sounds(tx: Connection, job_ids: Sequence[str]) -> None:
    """Delete what was heard in these jobs; the cells of their segments follow (`clear_stale`)."""
    c = sound_recordings.c
    packed = select(c.segment).where(c.job_id.in_(job_ids), c.segment.is_not(None))
    tx.execute(update(sound_segments).where(sound_segments.c.id.in_(packed)).values(stale=true()))
    for table in (sound_blocks, sound_recordings):
        tx.execute(delete(table).where(table.c.job_id.in_(job_ids)))


def pack_sounds(tx: Connection) -> int:
    """Put the channels of one project that has enough of them into a segment; how many."""
    c = sound_recordings.c
    waiting = (
        select(c.project)
        .where(c.segment.is_(None))
        .group_by(c.project)
        .having(func.sum(c.width) >= PACK_BYTES)
        .limit(1)
    )
    project = tx.scalar(waiting)
    if project is None:
        return 0
    rows = tx.execute(
        select(c.job_id, c.channel, c.width, c.pairs)
        .where(c.project == project, c.segment.is_(None))
        .order_by(c.job_id, c.channel)
        .with_for_update()
    )
    parts: list[Bits] = []
    places: list[tuple[str, int, int]] = []
    width = 0
    for row in rows:
        if places and width + row.width > PACK_BYTES:
            break
        places.append((row.job_id, row.channel, width))
        parts.append(read_pairs(row.pairs, row.width))
        width += row.width
    rows.close()
    segment = write_segment(tx, project, np.concatenate(parts, axis=1))
    for job_id, channel, first in places:
        own = update(sound_recordings).where(c.job_id == job_id, c.channel == channel)
        tx.execute(own.values(segment=segment, first_byte=first, pairs=null()))
    return len(places)


def write_segment(tx: Connection, project: str, matrix: Bits) -> int:
    """Write the pairs of many channels side by side; the segment's number."""
    made = insert(sound_segments).values(project=project, width=matrix.shape[1])
    segment = int(tx.execute(made.returning(sound_segments.c.id)).scalar_one())
    rows = [{"pair": pair, "segment": segment, "bits": row.tobytes()} for pair, row in enumerate(matrix)]
    for at in range(0, len(rows), _ROWS):
        tx.execute(insert(sound_pairs), rows[at : at + _ROWS])
    return segment


def clear_stale(tx: Connection) -> int:
    """Clear the cells of one segment that belong to no recording any more; whether there was one."""
    stale = select(sound_segments).where(sound_segments.c.stale).limit(1).with_for_update()
    segment = tx.execute(stale).one_or_none()
    if segment is None:
        return 0
    c, pairs = sound_recordings.c, sound_pairs.c
    kept = np.zeros(segment.width, np.uint8)
    for row in tx.execute(select(c.first_byte, c.width).where(c.segment == segment.id)):
        kept[row.first_byte : row.first_byte + row.width] = 255
    own = sound_segments.c.id == segment.id
    if not kept.any():
        tx.execute(delete(sound_pairs).where(pairs.segment == segment.id))
        tx.execute(delete(sound_segments).where(own))
        return 1
    rows = tx.execute(select(pairs.pair, pairs.bits).where(pairs.segment == segment.id)).all()
    changed = [
        {"cleared": row.pair, "kept": (bits & kept).tobytes()}
        for row in rows
        if ((bits := np.frombuffer(row.bits, np.uint8)) & ~kept).any()
    ]
    if changed:
        own_pair = (pairs.pair == bindparam("cleared"), pairs.segment == segment.id)
        tx.execute(update(sound_pairs).where(*own_pair).values(bits=bindparam("kept")), changed)
    tx.execute(update(sound_segments).where(own).values(stale=false()))
    return 1


def read_pairs(data: bytes, width: int) -> Bits:
    """The matrix of a channel that is in no segment yet."""
    return np.frombuffer(zlib.decompress(data), np.uint8).reshape(PAIRS, width)
