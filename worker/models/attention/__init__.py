"""Autoregressive decoders that attend to encoder frames, shared by the families that have one."""

from worker.machine.blas import preload_blas

# Before any file here imports MLX: the linker binds MLX's matrix product when MLX is loaded, and never again.
preload_blas()
