"""Memory measured: of batches, of a frame, and of reading a long recording."""
