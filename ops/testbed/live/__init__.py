"""Live sessions through the processes of a fleet: who serves them, and a client."""
