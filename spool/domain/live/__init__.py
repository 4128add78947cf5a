"""Live sessions: what is asked of one, and the log of what its client sent."""
