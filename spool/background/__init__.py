"""Loops that run in the background of API and worker processes: relay, sweep, deletions."""
