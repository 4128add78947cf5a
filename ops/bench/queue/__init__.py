"""Benchmarks of the queue: submission, claims, ordering and reports with many jobs in SQL."""
