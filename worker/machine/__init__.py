"""What this machine is: processor, GPU, memory and the BLAS that MLX calls."""
