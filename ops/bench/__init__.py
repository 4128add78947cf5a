"""Benchmarks; LOG.md keeps what was measured, when and on what."""
