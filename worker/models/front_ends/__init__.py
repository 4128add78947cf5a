"""From samples to features; a family chooses among these."""

from worker.machine.blas import preload_blas

# Before any file here imports MLX: the linker binds MLX's matrix product when MLX is loaded, and never again.
preload_blas()
