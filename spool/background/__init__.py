"""Background threads: relay and sweeper, event numbers, exports, deletions, signing of sources."""
