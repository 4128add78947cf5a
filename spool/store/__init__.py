"""Every SQL query of Spool. Callers open the transaction (`db.begin()`), these functions run inside it.

    database   the engine, its dialects' habits, and SQL failures as Spool's errors
    jobs       create, look up, list, cancel, retry (rows and cursors serve it)
    leases     claim, renew, progress, hand back, finish: fenced writes of a worker
    chunks     what was already decoded
    batches    many jobs handed in at once (standing: how far they are; batch_changes: cancelled, retried)
    events     what happened, in a log (placing gives the numbers)
    webhooks   who is told of it (deliveries: what they are sent, and what came of it)
    reuse      which finished transcript a job may take over
    outbox     messages still to be sent, the sweep, locks
    costs      the ledger and its reports (bills holds their records)
    workers    who works here

None of them commits, sends a message or reads a clock other than the database's.
"""

from spool.store.database import Database

__all__ = ["Database"]
