"""The demo model in PyTorch: the same network as `worker.models`, for training alone."""
