"""Live sessions: admission, what clients send, and what they are sent."""
