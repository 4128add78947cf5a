"""Handlers, a file a resource; they never import one another."""
