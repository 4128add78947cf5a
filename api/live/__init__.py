"""Live sessions as their clients see them: admission, what they send, what they are told."""
