"""Benchmarks of the queue: API, scheduler, fleets and upgrades."""
