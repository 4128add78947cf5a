"""The engine beside NeMo and parakeet-mlx, on the same weights and the same audio."""
