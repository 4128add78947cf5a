"""Every SQL query of Spool. Callers open the transaction (`db.begin()`); these functions run inside it.

    database          connections, the dialects' differences, and SQL failures as Spool's errors
    sql, rows         the database's clock, upserts, pages; a job's row as a record
    jobs, batches     created, listed, cancelled, retried; batch_progress: a batch's sums
    queue             the queue: claims, leases, fair shares, quotas, deadlines, outbox, locks
    chunks            what is already decoded; transcript_reuse: transcripts that a job may reuse
    ledger            costs and their reports
    event_log         events and their numbers; webhooks: who gets them
    workers           the workers; monitoring: what monitors read
    deletions, audit, api_keys

None of them commits, sends a message, or reads a clock other than the database's.
"""

from spool.store.database import Database

__all__ = ["Database"]
