"""What the witness heard, kept for the search by sound; deleted with the transcript.

The blocks are the truth (`spool.sounds.blocks`); all else is an index that is made from them
(`spool.sounds.pairs`): of each channel by itself at first, then of many together in a segment.
"""

from sqlalchemy import DDL, BigInteger, Boolean, Column, Index, Integer, LargeBinary, Table, event, text
from sqlalchemy.schema import ExecutableDDLElement

from spool.tables.base import NAME, job_key, metadata

sound_blocks = Table(
    "sound_blocks",
    metadata,
    job_key(),
    Column("channel", Integer, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("block", LargeBinary, nullable=False),
)
sound_recordings = Table(
    "sound_recordings",
    metadata,
    job_key(),
    Column("channel", Integer, primary_key=True),
    Column("project", NAME, nullable=False),
    # Bytes of cells; a bit is one cell.
    Column("width", Integer, nullable=False),
    # The matrix of its pairs, compressed, until it is in a segment.
    Column("pairs", LargeBinary),
    # The segment that it is in, and where its cells begin there.
    Column("segment", BigInteger),
    Column("first_byte", Integer),
    Index("ix_sound_recordings_project_segment", "project", "segment"),
    Index("ix_sound_recordings_segment_first_byte", "segment", "first_byte"),
)
sound_segments = Table(
    "sound_segments",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("project", NAME, nullable=False, index=True),
    Column("width", Integer, nullable=False),
    # Some of its cells are those of a transcript that was deleted.
    Column("stale", Boolean, nullable=False, server_default=text("false")),
)
sound_pairs = Table(
    "sound_pairs",
    metadata,
    Column("pair", Integer, primary_key=True),
    Column("segment", BigInteger, primary_key=True),
    Column("bits", LargeBinary, nullable=False),
    Index("ix_sound_pairs_segment", "segment"),
)
# Compressed, a search would spend half of PostgreSQL's time on undoing that; cut into the pieces of a TOAST
# table, a row takes the server four times as long to read as one that fills a page.
_STORED_PLAIN: ExecutableDDLElement = DDL(  # type: ignore[no-untyped-call]
    "ALTER TABLE sound_pairs ALTER COLUMN bits SET STORAGE EXTERNAL, SET (toast_tuple_target = 8160)"
)
event.listen(sound_pairs, "after_create", _STORED_PLAIN.execute_if(dialect="postgresql"))
