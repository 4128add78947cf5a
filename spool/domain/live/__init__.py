"""Live sessions: their options, and the log of what the client sent."""
