"""Benchmarks; LOG.md says what each has measured, where and when."""
