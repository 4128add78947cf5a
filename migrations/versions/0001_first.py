"""All tables.

Revision 0001, the first.
"""

from alembic import op

from migrations.first import (
    edits,
    events,
    exports,
    glossaries,
    jobs,
    passages,
    review,
    sources,
    uploads,
    voices,
)

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "batches",
    "jobs",
    "locks",
    "phrase_lists",
    "quota_use",
    "turns",
    "system_settings",
    "workers",
    "chunk_sums",
    "chunks",
    "speaker_turns",
    "cost_lines",
    "deletions",
    "idempotency",
    "outbox",
    "api_keys",
    "audits",
    "counters",
    "event_inbox",
    "event_position",
    "events",
    "turn_charges",
    "webhooks",
    "source_hashes",
    "typescripts",
    "uploads",
    "webhook_deliveries",
    "passages",
    "edits",
    "review_passages",
    "review_recordings",
    "review_samples",
    "review_sample_passages",
    "glossaries",
    "language_models",
    "passage_words",
    "voices",
    "voice_prints",
    "connections",
    "source_links",
    "exports",
    "sources",
    "source_items",
    "source_marks",
)


def upgrade() -> None:
    jobs.create()
    events.create()
    passages.create()
    voices.create()
    edits.create()
    review.create()
    glossaries.create()
    exports.create()
    sources.create()
    uploads.create()


def downgrade() -> None:
    passages.drop()
    for table in reversed(TABLES):
        op.drop_table(table)
