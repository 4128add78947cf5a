"""What a fleet can do, and which of its workers may take a job. Pure."""
