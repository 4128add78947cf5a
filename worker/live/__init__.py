"""Live sessions: audio as it comes in, partial and final results as they are known."""
