"""The queue in SQL: who runs which job next, leases, fair shares, quotas, deadlines, outbox, locks."""
