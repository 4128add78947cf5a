"""The acoustic model in MLX, one network part a file."""
