"""The queue in SQL: leases, the scheduler, fair share, quotas, deadlines and the outbox."""
