"""Voices that people named, and the voice prints of jobs' speakers.

A voice has no print of its own: it is the mean of those that a person confirmed, so that deleting a job's
transcript removes what the voice knew from it.
"""

from sqlalchemy import Column, ForeignKey, Index, LargeBinary, String, Table, UniqueConstraint

from spool.domain.archive.voices import Voice
from spool.tables.base import ID, UtcDateTime, job_key, metadata
from spool.tables.record import table_of

voices = table_of(
    "voices",
    Voice,
    Column("created_at", UtcDateTime, nullable=False),
    UniqueConstraint("project", "name"),
)

voice_prints = Table(
    "voice_prints",
    metadata,
    job_key(),
    Column("label", String(16), primary_key=True),
    # SHA-256 of the encoder that made it: prints of two encoders cannot be compared.
    Column("encoder", String(64), nullable=False),
    Column("print", LargeBinary, nullable=False),
    # The voice that a person says it is.
    Column("voice_id", ID, ForeignKey("voices.id", ondelete="SET NULL")),
    Index("ix_voice_prints_voice_id", "voice_id"),
)
