"""Heads that several families may share."""

from worker.machine.blas import preload_blas

# Before any file here imports MLX: the linker binds MLX's matrix product when MLX is loaded, and never again.
preload_blas()
