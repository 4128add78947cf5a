"""The engine: a child process that owns the model, and the client that feeds it."""
