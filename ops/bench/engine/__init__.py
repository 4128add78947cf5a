"""Benchmarks of the engine: speed and limits of models and kernels."""
