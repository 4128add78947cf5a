"""NVIDIA's Canary (NeMo's EncDecMultiTaskModel): a FastConformer encoder and an autoregressive decoder."""

from worker.machine.blas import preload_blas

# Before any file here imports MLX: the linker binds MLX's matrix product when MLX is loaded, and never again.
preload_blas()
