"""Outgoing connections: which addresses are allowed, and HTTP pinned to a checked address."""
