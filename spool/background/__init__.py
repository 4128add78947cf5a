"""Threads that keep a running process's work moving: relay, sweeper, event numbers, deletions."""
