"""Benchmarks of the engine: encoder, search, batching, memory."""
