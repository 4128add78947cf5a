"""The engine: the child process that owns MLX, its protocol, its batches, and the client that feeds it."""
