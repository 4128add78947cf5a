"""Runs the API: one process, or several that share a port."""
