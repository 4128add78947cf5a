"""Live transcription held against its oracles."""
