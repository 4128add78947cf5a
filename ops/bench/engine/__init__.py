"""Benchmarks of the engine: speed, memory and limits of models and kernels."""
