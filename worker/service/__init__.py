"""What keeps a worker in service: heartbeat, health, schedule, supervision, logs, counters."""
