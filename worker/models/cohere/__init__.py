"""Cohere Transcribe: a FastConformer encoder and a light autoregressive decoder."""

from worker.machine.blas import preload_blas

# Before any file here imports MLX: the linker binds MLX's matrix product when MLX is loaded, and never again.
preload_blas()
