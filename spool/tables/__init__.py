"""The SQL tables, as SQLAlchemy Core. Alembic's migrations end exactly here (a test compares them).

Names, types, constraints and indexes only; queries are in `spool.store`. Instants are UTC, sample counts are
at 16 kHz, engine time is whole nanoseconds and money is whole nano-units of the currency, so every sum is
exact on both databases.
"""

from spool.tables.admin import api_keys, audits, counters, system_settings
from spool.tables.base import ID, metadata
from spool.tables.batches import batches
from spool.tables.closures import closures, not_private, openings
from spool.tables.deletions import chunk_sums, deletions
from spool.tables.edits import edits, former_names
from spool.tables.events import event_inbox, event_position, events
from spool.tables.exports import connections, exports, source_links
from spool.tables.glossaries import glossaries, language_models
from spool.tables.jobs import channel_passes, chunks, jobs, phrase_lists, source_hashes, typescripts
from spool.tables.passages import passage_words, passages
from spool.tables.queue import idempotency, locks, outbox, quota_use, turn_charges, turns
from spool.tables.receipts import receipt_keys, receipts
from spool.tables.review import review_passages, review_recordings, review_sample_passages, review_samples
from spool.tables.sounds import sound_blocks, sound_pairs, sound_recordings, sound_segments
from spool.tables.sources import source_items, source_marks, sources
from spool.tables.uploads import uploads
from spool.tables.voices import voice_prints, voices
from spool.tables.webhooks import webhook_deliveries, webhooks
from spool.tables.workers import cost_lines, workers

__all__ = [
    "ID",
    "api_keys",
    "audits",
    "batches",
    "channel_passes",
    "chunk_sums",
    "chunks",
    "closures",
    "connections",
    "cost_lines",
    "counters",
    "deletions",
    "edits",
    "event_inbox",
    "event_position",
    "events",
    "exports",
    "former_names",
    "glossaries",
    "idempotency",
    "jobs",
    "language_models",
    "locks",
    "metadata",
    "not_private",
    "openings",
    "outbox",
    "passage_words",
    "passages",
    "phrase_lists",
    "quota_use",
    "receipt_keys",
    "receipts",
    "review_passages",
    "review_recordings",
    "review_sample_passages",
    "review_samples",
    "sound_blocks",
    "sound_pairs",
    "sound_recordings",
    "sound_segments",
    "source_hashes",
    "source_items",
    "source_links",
    "source_marks",
    "sources",
    "system_settings",
    "turn_charges",
    "turns",
    "typescripts",
    "uploads",
    "voice_prints",
    "voices",
    "webhook_deliveries",
    "webhooks",
    "workers",
]
