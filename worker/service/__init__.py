"""The worker's process around its jobs: heartbeat, health, hours, counters, supervision."""
